"""The Slack door on a real database, served over a real socket, with the double on the other side."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import uvicorn

from fakes.api_stage import ApiStage, WallClock, set_stage
from fakes.raw_sql import BACKENDS, run_sql
from fakes.slack_double import BOT_TOKEN, BOT_USER, SIGNING_SECRET, TEAM, Sender
from fakes.slack_double.workspace import BOT_ID
from fakes.waiting import HANG_SECONDS, until_found
from throughline.db.database import Database
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import Message
from throughline.http.app import add_interface
from throughline.slack.bolt import CommandReply, Listeners, make_bolt
from throughline.slack.config import Identity, SlackConfig
from throughline.slack.http import PATH, EventsEndpoint
from throughline.slack.read_event import EventStorage, StopSign
from throughline.slack.store.database import SlackDatabase, slack_database

IDENTITY = Identity(TEAM, "Double", BOT_USER, BOT_ID, TEAM, "https://double.slack.com/")


@dataclass
class SlackStage:
    """The application with the Slack route, and a sender that reaches it."""

    api: ApiStage
    slack: SlackDatabase
    sender: Sender
    client: httpx.AsyncClient
    url: str
    stops: list[StopSign] = field(default_factory=list)

    @property
    def database(self) -> Database:
        return self.api.database

    async def rows(self, statement: str, *arguments: object) -> list[tuple[object, ...]]:
        return await run_sql(self.url, statement, *arguments)

    async def run_texts(self) -> list[str]:
        """Return what the stored runs ask, in their order."""
        return [str(text) for (text,) in await self.rows("select input ->> 'content' from runs order by seq")]

    async def history(self, owner: UserId, session: SessionId) -> tuple[Message, ...]:
        query = MessageQuery(after=None, before=None, limit=200, order="asc")
        return (await self.database.messages.list_messages(owner, session, query)).items


async def no_stop(_sign: StopSign) -> None:
    """Nothing runs here."""


async def no_command(_command: Mapping[str, object]) -> CommandReply:
    return CommandReply("no commands here")


async def begun(door: SlackStage, work: Awaitable[object], *, waiting: int) -> "asyncio.Future[object]":
    """Begin the work; return when so many connections wait for a lock, or the work is done."""
    task = asyncio.ensure_future(work)

    async def is_there() -> bool:
        count = f"select count(*) from {BACKENDS} where wait_event_type = 'Lock'"
        return task.done() or await door.rows(count) == [(waiting,)]

    await until_found(is_there)
    return task


@asynccontextmanager
async def slack_stage(database: Database, database_url: str) -> AsyncIterator[SlackStage]:
    """Serve the door; turns are not played."""
    api = set_stage(database)
    slack = slack_database(database, "assistant")
    stops: list[StopSign] = []

    async def stop(sign: StopSign) -> None:
        stops.append(sign)

    storage = EventStorage(slack, IDENTITY, stop)
    config = SlackConfig(BOT_TOKEN, SIGNING_SECRET)
    bolt = make_bolt(config, IDENTITY, Listeners(storage.store, no_command))
    add_interface(api.app, PATH, EventsEndpoint(bolt, SIGNING_SECRET, WallClock()))
    async with served_asgi(api.app) as client:
        yield SlackStage(
            api, slack, Sender(client, retry_seconds=(0, 0, 0), ack_seconds=HANG_SECONDS), client, database_url, stops
        )


@asynccontextmanager
async def served_asgi(application: Callable[..., Awaitable[None]]) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of the application on a loopback socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        server = uvicorn.Server(uvicorn.Config(application, log_config=None, lifespan="off", ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            async with httpx.AsyncClient(
                base_url=url, timeout=HANG_SECONDS, limits=httpx.Limits(max_connections=50)
            ) as client:
                yield client
        finally:
            server.should_exit = True
            await serving
