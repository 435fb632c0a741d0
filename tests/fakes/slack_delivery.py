"""Slack on a real database, served over a real socket, with the double on the other side."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import uvicorn

from fakes.api_stage import ApiStage, WallClock, set_stage
from fakes.conversations import claim_next
from fakes.event_log import MESSAGE_ID
from fakes.raw_sql import BACKENDS, run_sql
from fakes.slack_double import (
    BOT_TOKEN,
    BOT_USER,
    SIGNING_SECRET,
    TEAM,
    Posted,
    Said,
    Sender,
    SlackDouble,
    Workspace,
    say,
    serve_slack,
)
from fakes.slack_double.payloads import BOT_ID, fresh_ts
from fakes.waiting import HANG_SECONDS, ManualClock, until_found
from throughline.db.database import Database
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.events import Event, MessageCompleted, MessageDelta, NewEvent, ToolAnswered, ToolCalled
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.run import ClaimedRun, Claimer, Outcome, Run, RunError, RunStatus
from throughline.http.app import add_interface
from throughline.slack.answers.answer_sender import AnswerSender
from throughline.slack.answers.dispatcher import Dispatcher, DispatcherConfig
from throughline.slack.answers.sent_messages import DeliveryServices
from throughline.slack.bolt import CommandReply, Listeners, make_bolt, make_client, silent_logger
from throughline.slack.config import Identity, SlackConfig
from throughline.slack.http import PATH, EventsEndpoint
from throughline.slack.read_event import EventStorage, StopSign
from throughline.slack.store.conversations import Asker, ThreadSession
from throughline.slack.store.database import SlackDatabase, slack_database
from throughline.slack.store.inbox import AcceptOutcome
from throughline.slack.store.outbox import Delivery, DeliveryClaim
from throughline.slack.store.people import SlackId
from throughline.slack.store.slack_events import SlackLocation, SlackMessage
from throughline.slack.web_api import SlackWebApi

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


async def begun(stage: SlackStage, work: Awaitable[object], *, waiting: int) -> "asyncio.Future[object]":
    """Begin the work; return when so many connections wait for a lock, or the work is done."""
    task = asyncio.ensure_future(work)

    async def is_there() -> bool:
        count = f"select count(*) from {BACKENDS} where wait_event_type = 'Lock'"
        return task.done() or await stage.rows(count) == [(waiting,)]

    await until_found(is_there)
    return task


@asynccontextmanager
async def slack_stage(database: Database, database_url: str) -> AsyncIterator[SlackStage]:
    """Serve Slack; turns are not played."""
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


_threads: dict[str, str] = {}


async def take(database: Database, text: str, *, channel: str, user: str, thread: bool = False) -> SessionId:
    """Take a message, in the channel's last thread if `thread`; return the session it went to."""
    ts = fresh_ts()
    thread_ts = _threads[channel] if thread else ts
    _threads[channel] = thread_ts
    slack, who = slack_database(database, "assistant"), SlackId(TEAM, user)
    place = SlackLocation(TEAM, channel, ts)
    message = SlackMessage(f"Ev{ts}", place, thread_ts, who, text, is_direct=channel[0] == "D", is_addressed=True)
    assert await slack.inbox.accept(message) is AcceptOutcome.ACCEPTED
    person = await slack.people.find(who)
    assert person is not None
    found = await slack.conversations.latest(TEAM, channel, Asker(who, person.user_id))
    assert isinstance(found, ThreadSession)
    return found.session_id


CLAIMER = Claimer("test-worker", 60.0)


@dataclass
class PlayedTurn:
    """A claimed run whose events a test writes."""

    database: Database
    claimed: ClaimedRun
    seq: int = 0

    async def emit(self, event: Event) -> None:
        self.seq += 1
        await self.database.events.append_events(self.claimed.lease, [NewEvent(self.seq, event)])

    async def say(self, text: str) -> None:
        await self.emit(MessageDelta(MESSAGE_ID, text))

    async def call_tool(self, name: str, *, saying: str) -> ToolCall:
        """Store a step that asks for a tool, and tell of both."""
        call = ToolCall(id=f"c{self.seq}", name=name, arguments="{}")
        step = NewMessage(role=Role.ASSISTANT, content=saying, source=Source.SLACK, tool_calls=(call,))
        stored = await self.database.messages.append_message(self.claimed.lease, f"said-{self.seq}", step)
        await self.emit(MessageCompleted(stored))
        await self.emit(ToolCalled(call, MESSAGE_ID))
        return call

    async def answer_tool(self, call: ToolCall) -> None:
        result = NewMessage(Role.TOOL, "done", Source.SLACK, tool_call_id=call.id, name=call.name)
        stored = await self.database.messages.append_message(self.claimed.lease, f"result-{call.id}", result)
        await self.emit(ToolAnswered(stored))

    async def finish(self, answer: str, *, status: RunStatus = RunStatus.SUCCEEDED, error: str = "") -> Run:
        message = NewMessage(role=Role.ASSISTANT, content=answer, source=Source.SLACK) if answer else None
        failure = RunError("model_unavailable", error) if error else None

        outcome = Outcome(status, answer=message, error=failure)
        return await self.database.runs.finish(self.claimed.lease, outcome, (), self.seq + 1)


@dataclass
class DeliveryStage:
    """The outbox, the double, and senders between them."""

    database: Database
    slack: SlackDatabase
    double: SlackDouble
    clock: ManualClock
    services: DeliveryServices
    url: str
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    @property
    def posted(self) -> list[Posted]:
        return self.double.workspace.posted

    def texts(self) -> list[str]:
        return [message.text for message in self.posted]

    def methods(self) -> list[str]:
        return [call.method for call in self.double.workspace.calls]

    async def rows(self, statement: str, *arguments: object) -> list[tuple[object, ...]]:
        return await run_sql(self.url, statement, *arguments)

    async def ask(self, text: str = "hello", *, said: Said | None = None) -> PlayedTurn:
        """Take a message and claim its run."""
        await self.take(said or say(text))
        claimed = await claim_next(self.database.runs, CLAIMER)
        assert claimed is not None
        return PlayedTurn(self.database, claimed)

    async def take(self, said: Said) -> None:
        message = SlackMessage(
            event_id=f"Ev{said.ts}",
            place=SlackLocation(TEAM, said.channel, said.ts),
            thread_ts=said.where,
            who=SlackId(TEAM, said.user),
            text=said.text,
            is_direct=said.channel.startswith("D"),
            is_addressed=True,
        )
        await self.slack.inbox.accept(message)

    async def claim(self) -> Delivery:
        (delivery,) = await self.slack.outbox.claim(DeliveryClaim("sender", limit=1, lease_seconds=60))
        return delivery

    async def start(self, delivery: Delivery | None = None) -> "asyncio.Task[None]":
        """Set a sender to work on the next delivery."""
        sender = AnswerSender(self.database.followed_runs, self.services)
        self.tasks.append(asyncio.create_task(sender.deliver(delivery or await self.claim())))
        return self.tasks[-1]

    async def deliver(self) -> None:
        """Deliver the next one to its end."""
        await (await self.start())

    async def crash(self) -> None:
        """Let the senders die where they are; their leases run out."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()
        statement = "update slack_deliveries set lease_until = now() - interval '1 s' where lease_until > now()"
        await run_sql(self.url, statement)

    async def free_again(self, delivery: Delivery) -> None:
        """Undo the last note, as a crash just before it would have."""
        statement = "update slack_deliveries set status = 'waiting', finished_at = null where id = $1"
        await run_sql(self.url, statement, delivery.lease.id)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the double to have seen something."""
        async with asyncio.timeout(HANG_SECONDS):
            while not condition():
                await asyncio.sleep(0.01)

    async def until_noted(self) -> None:
        """Wait for the outbox to know a message's name."""
        async with asyncio.timeout(HANG_SECONDS):
            while not await self.rows("select 1 from slack_parts where ts is not null"):
                await asyncio.sleep(0.01)

    async def until_stored(self, *expected: object) -> None:
        """Wait for the first delivery's row to read (status, error)."""
        async with asyncio.timeout(HANG_SECONDS):
            while await self.rows("select status, error from slack_deliveries order by seq limit 1") != [expected]:
                await asyncio.sleep(0.02)

    async def in_time(self, condition: Callable[[], bool]) -> None:
        """Wait while the senders' time goes on, a second each time."""
        async with asyncio.timeout(HANG_SECONDS):
            while not condition():
                self.clock.advance(1)
                await asyncio.sleep(0.02)


def dispatcher_of(
    outgoing: DeliveryStage,
    name: str = "one",
    lease_seconds: float = HANG_SECONDS,
    on_token_refused: Callable[[str], None] | None = None,
    concurrency: int = 500,
) -> Dispatcher:
    """Return a dispatcher for the stage's outbox; nothing is delivered before it runs."""
    sender = AnswerSender(outgoing.database.followed_runs, outgoing.services)
    config = DispatcherConfig(name, concurrency=concurrency, lease_seconds=lease_seconds)
    return Dispatcher(outgoing.slack.outbox, sender, config, on_token_refused)


@asynccontextmanager
async def delivery_stage(database: Database, database_url: str) -> AsyncIterator[DeliveryStage]:
    """Serve a double that keeps the stage's time."""
    clock = ManualClock()
    async with serve_slack(SlackDouble(Workspace(now=clock.monotonic))) as double:
        client = make_client(SlackConfig(BOT_TOKEN, api_url=double.url), silent_logger())
        slack = slack_database(database, "assistant")
        delivery_services = DeliveryServices(slack, SlackWebApi(client, clock), clock, IDENTITY, database.citations)
        stage = DeliveryStage(database, slack, double, clock, delivery_services, database_url)
        try:
            yield stage
        finally:
            for task in stage.tasks:
                task.cancel()
            await asyncio.gather(*stage.tasks, return_exceptions=True)
            assert double.rules.complaints() == []
