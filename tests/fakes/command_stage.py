"""The real application as commands reach it: over a unix socket, past what notes requests and cuts streams."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import httpx
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.http.config import ApiConfig
from app.api.http.refusals import StreamAborted
from app.api.http.sse import MEDIA_TYPE
from app.cli.client import ServiceClient
from app.db.sessions.repository import NewSession
from app.domain.ids import UserId
from app.domain.message import Source
from fakes.api_stage import ApiStage
from fakes.conversations import Conversation
from fakes.raw_sql import run_sql
from fakes.waiting import HANG_SECONDS

OWN_SOCKET = ApiConfig(version="0.0.0", trusted_socket=True, no_worker_timeout_seconds=HANG_SECONDS)
"""What a command serves itself with."""

BLOCK_END = b"\n\n"
TALK = """
    with counted as (update sessions set message_count = $2, message_tokens = 3 * $2 where id = $1)
    insert into messages (id, session_id, position, role, content, source, token_count)
    select gen_random_uuid(), $1, n, case n % 2 when 1 then 'user' else 'assistant' end, 'text ' || n, 'cli', 3
    from generate_series(1, $2::integer) n
"""


@dataclass(frozen=True)
class Cut:
    """Where a stream is cut: behind so many events. Then the connection breaks, or the stream `ends` as if whole.

    `names_run` False takes away the header that says which run it is.
    """

    after: int
    ends: bool = False
    names_run: bool = True


@dataclass
class Way:
    """Stands before an application: notes what is asked, and cuts one stream for each of `cuts`."""

    app: ASGIApp
    cuts: list[Cut] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        self.asked.append(request)
        if _is_stream(request) and self.cuts:
            send = _CutSend(self.cuts.pop(0), send)
        await self.app(scope, receive, send)

    @property
    def streams(self) -> list[Request]:
        """The requests for a stream: messages, and their answers taken up again."""
        return list(filter(_is_stream, self.asked))


class _CutSend:
    """Sends the start of a stream, then makes the application give the stream up as it does by itself."""

    def __init__(self, cut: Cut, send: Send) -> None:
        self._cut, self._send, self._left = cut, send, cut.after

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send({**message, "headers": list(filter(self._is_kept, message["headers"]))})
        else:
            await self._send({**message, "body": self._start_of(message["body"])})
        if self._left == 0:
            if self._cut.ends:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            raise StreamAborted

    def _is_kept(self, header: tuple[bytes, bytes]) -> bool:
        return self._cut.names_run or header[0] != b"content-location"

    def _start_of(self, body: bytes) -> bytes:
        blocks = body.split(BLOCK_END)[:-1][: self._left]
        self._left -= len(blocks)
        return b"".join(block + BLOCK_END for block in blocks)


@dataclass
class CommandStage:
    """The application that commands talk to, what stands behind it, and where it is."""

    api: ApiStage
    way: Way
    url: str
    socket_path: Path
    owner_id: UserId

    async def session(self, title: str = "") -> Conversation:
        """Open a session of the user whom commands act for."""
        new = NewSession(owner_id=self.owner_id, agent="assistant", title=title, source=Source.CLI, metadata={})
        session, _ = await self.api.database.sessions.create(new)
        return Conversation(self.api.database, self.owner_id, session)

    async def talk(self, count: int, *, title: str = "", summarized: int = 0) -> Conversation:
        """Open a session with so many messages, each `text N`, of which a summary stands for the first."""
        talk = await self.session(title)
        await run_sql(self.url, TALK, talk.session.id, count)
        if summarized:
            await talk.adopt((await talk.messages())[summarized - 1])
        return talk

    async def sessions(self) -> list[UUID]:
        """Return the ids of all sessions, the oldest first."""
        return [UUID(str(found)) for (found,) in await run_sql(self.url, "select id from sessions order by created_at")]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ServiceClient]:
        """Yield a client of the command line's own."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket_path))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield ServiceClient(http, place="the service")


@asynccontextmanager
async def command_stage(api: ApiStage, url: str, socket_path: Path) -> AsyncIterator[CommandStage]:
    """Serve the application on a unix socket in the running loop; `url` is its database."""
    way = Way(api.app)
    api.turns.awaits_reader = True
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(socket_path))
    owner_id = await api.database.users.get_or_create("local")
    async with api.serving(listener, way):
        yield CommandStage(api, way, url, socket_path, owner_id)
        await api.turns.settle()


def _is_stream(request: Request) -> bool:
    return request.headers.get("accept") == MEDIA_TYPE
