"""The parts of a command line: calls of programs are noted, the terminal is one of fixed size."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import httpx
from click.testing import CliRunner, Result
from rich.cells import cell_len
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fakes.api_stage import ApiStage
from fakes.conversations import Conversation
from fakes.pooler import urls_of
from fakes.raw_sql import run_sql
from fakes.waiting import HANG_SECONDS
from throughline.assembly.front_ends import commands, storages
from throughline.cli.client import ServiceClient
from throughline.cli.dependencies import (
    CliDependencies,
    DatabaseStatus,
    FrontEndOptions,
    LocalOptions,
    ServeOptions,
    WorkerOptions,
)
from throughline.cli.root import command_line
from throughline.cli.screen import standard_input_lines
from throughline.db.database import Database, DatabaseConfig
from throughline.db.langgraph_checkpoints import open_threads
from throughline.domain.basic_types import UserId
from throughline.domain.message import Source
from throughline.domain.model_window import ModelCheck
from throughline.domain.service_status import QueueState, ServiceStatus
from throughline.domain.session import NewSession
from throughline.domain.tool_server import NO_SERVED_TOOLS, ServedTools, ToolServer
from throughline.http.follow import MEDIA_TYPE
from throughline.http.route_errors import StreamAborted
from throughline.http.services import ApiConfig

IDLE_SERVICE = ServiceStatus("0019", processes=(), queued=QueueState(0, None), held=(), jobs=(), slack=None)


@dataclass
class FakeWorld:
    """What stands behind the commands, and what they did to it.

    The service listens at `socket_path`, keys lie in the database at `database_url`: a test names those it needs.
    """

    socket_path: Path | None = None
    database_url: str = ""
    revision: str | None = None
    served: list[ServeOptions] = field(default_factory=list)
    worked: list[WorkerOptions] = field(default_factory=list)
    alone: list[FrontEndOptions] = field(default_factory=list)
    opened: list[LocalOptions] = field(default_factory=list)
    status: ServiceStatus = IDLE_SERVICE
    check: ModelCheck | None = None
    servers: tuple[tuple[ToolServer, ...], ServedTools] = ((), NO_SERVED_TOOLS)

    def run(self, *arguments: str, typed: str = "") -> Result:
        """Run the command line with these arguments and this standard input."""
        return CliRunner().invoke(
            command_line(commands()), arguments, input=typed, prog_name="throughline", obj=self.dependencies()
        )

    def dependencies(self) -> CliDependencies:
        return CliDependencies(
            serve=self.served.append,
            worker=self.worked.append,
            front_end=self.alone.append,
            open_local_service=self._open,
            standard_input_lines=standard_input_lines,
            database=self._open_database,
            upgrade_database=self._upgrade,
            database_status=self._status,
            database_address=self._address,
            check_model=self._check_model,
            check_servers=self._check_servers,
            service_status=self._service_status,
            stored_threads=open_threads,
        )

    @asynccontextmanager
    async def _open(self, options: LocalOptions) -> AsyncIterator[Path]:
        self.opened.append(options)
        assert self.socket_path is not None, "this test serves nothing"
        yield self.socket_path

    @asynccontextmanager
    async def _open_database(self, options: LocalOptions) -> AsyncIterator[Database]:
        self.opened.append(options)
        # Not opened: nothing listens or is checked.
        database = Database(DatabaseConfig(**urls_of(self.database_url), front_ends=storages()))
        try:
            yield database
        finally:
            await database.close()

    async def _upgrade(self, _options: LocalOptions) -> None:
        self.revision = "0001"

    async def _address(self, options: LocalOptions) -> str:
        self.opened.append(options)
        return "postgresql://host/name"

    async def _status(self, _options: LocalOptions) -> DatabaseStatus:
        return DatabaseStatus(self.revision, "0001", is_current=self.revision == "0001")

    async def _check_model(self, _agent: str) -> ModelCheck:
        assert self.check is not None, "this test checks no model"
        return self.check

    async def _check_servers(self, _agent: str) -> tuple[tuple[ToolServer, ...], ServedTools]:
        return self.servers

    async def _service_status(self, options: LocalOptions) -> ServiceStatus:
        self.opened.append(options)
        return self.status


REFUSED = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
ALLOWED = re.compile(rf"\x1b\[(?P<up>\d+)A|\x1b\[[JK]|\x1b\[[\d;]*m|\n|[^{REFUSED}]")


class TerminalScreen(StringIO):
    """What a person looks at: rows of `width` columns, of which the last `height` can still be changed."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self._width, self._height = width, height
        self._rows = [""]
        self._at = 0
        self.written = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written += text
        position = 0
        while position < len(text):
            found = ALLOWED.match(text, position)
            assert found is not None, f"the terminal would obey {text[position : position + 10]!r}"
            self._obey(found)
            position = found.end()
        return len(text)

    def _obey(self, found: re.Match[str]) -> None:
        piece = found.group()
        if found["up"]:
            assert self._at - int(found["up"]) >= self._top, "rows that have left the screen cannot be reached"
            self._at -= int(found["up"])
        elif piece == "\x1b[K":
            self._rows[self._at] = ""
        elif piece == "\x1b[J":
            assert self._at > self._top, "tmux keeps a copy of a screen that is erased whole"
            del self._rows[self._at + 1 :]
            self._rows[self._at] = ""
        elif piece == "\n":
            self._next_row()
        elif not piece.startswith("\x1b"):
            if cell_len(self._rows[self._at] + piece) > self._width:
                self._next_row()
            self._rows[self._at] += piece

    def _next_row(self) -> None:
        self._at += 1
        if self._at == len(self._rows):
            self._rows.append("")

    @property
    def _top(self) -> int:
        """The first row that is still on the screen."""
        return max(len(self._rows) - self._height, 0)

    @property
    def rows(self) -> list[str]:
        """All rows, those that have left the screen too, without empty ones at and below the cursor."""
        last = len(self._rows)
        while last > self._at and not self._rows[last - 1]:
            last -= 1
        return self._rows[:last]


@dataclass
class TypedLines:
    """Lines as if typed at a terminal; an exception in the list is raised at the prompt."""

    lines: list[str | BaseException] = field(default_factory=list)
    is_terminal: bool = True
    begun_as: list[str] = field(default_factory=list)

    async def read(self, question: str = "", text: str = "") -> str | None:
        """Return the next line, whatever is asked; note as what it began, if as anything."""
        del question
        self.begun_as.extend([text] if text else [])
        line = self.lines.pop(0) if self.lines else None
        if isinstance(line, BaseException):
            raise line
        return line


OWN_SOCKET = ApiConfig(version="0.0.0", trusted_socket=True, no_worker_timeout_seconds=HANG_SECONDS)
"""How a command serves the application to itself."""

BLOCK_END = b"\n\n"
TALK = """
    with counted as (update sessions set message_count = $2, message_tokens = 3 * $2 where id = $1)
    insert into messages (id, session_id, position, role, content, source, token_count)
    select gen_random_uuid(), $1, n, case n % 2 when 1 then 'user' else 'assistant' end,
        coalesce($3::jsonb ->> n::text, 'text ' || n), 'cli', 3 from generate_series(1, $2::integer) n
"""
"""Hundreds of messages in one statement: one by one they would take longer than what a test looks at."""


@dataclass(frozen=True)
class Cut:
    """Where a stream is cut: behind so many events. Then the connection breaks, or the stream `ends` as if whole.

    `names_run` False takes away the header that says which run it is.
    """

    after: int
    ends: bool = False
    names_run: bool = True


@dataclass
class RecordingMiddleware:
    """Stands before an application: notes what is asked, and cuts one stream for each of `cuts`.

    `bodies` are those of the requests in `asked`, as far as they have been read.
    """

    app: ASGIApp
    cuts: list[Cut] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)
    bodies: list[bytearray] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, body = Request(scope), bytearray()
        self.asked.append(request)
        self.bodies.append(body)

        async def read() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        if _is_stream(request) and self.cuts:
            send = _CutSend(self.cuts.pop(0), send)
        await self.app(scope, read, send)

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
    """The application that commands talk to, and what stands behind it.

    `url` is its database, `owner_id` the user whom commands act for.
    """

    api: ApiStage
    way: RecordingMiddleware
    world: FakeWorld
    url: str
    socket_path: Path
    owner_id: UserId

    async def run(self, *arguments: object, typed: str = "") -> Result:
        """Run a command in a thread with an event loop of its own, while this loop serves it."""
        return await asyncio.to_thread(self.world.run, *map(str, arguments), typed=typed)

    async def session(self, title: str = "") -> Conversation:
        """Open a session."""
        new = NewSession(owner_id=self.owner_id, agent="assistant", title=title, source=Source.CLI, metadata={})
        session, _ = await self.api.database.sessions.create(new)
        return Conversation(self.api.database, self.owner_id, session)

    async def talk(self, count: int, *, title: str = "", texts: Mapping[int, str] | None = None) -> Conversation:
        """Open a session with so many messages, by user and assistant in turns, each `text N` or the one of `texts`."""
        talk = await self.session(title)
        await self.sql(TALK, talk.session.id, count, json.dumps(texts or {}))
        return talk

    async def said(self) -> list[object]:
        """Return what the user said in all sessions, in order."""
        return [
            text for (text,) in await self.sql("select content from messages where role = 'user' order by created_at")
        ]

    async def titles(self) -> list[object]:
        """Return the titles of all sessions, the oldest first."""
        return [title for (title,) in await self.sql("select title from sessions order by created_at")]

    async def sql(self, statement: str, *arguments: object) -> list[tuple[object, ...]]:
        """Run one statement on the database and return its rows."""
        return await run_sql(self.url, statement, *arguments)

    def asked_at(self, place: str) -> list[tuple[str, dict[str, str]]]:
        """Return path and query of each request whose path ends in `place`."""
        requests = [request for request in self.way.asked if request.url.path.endswith(place)]
        return [(request.url.path, dict(request.query_params)) for request in requests]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ServiceClient]:
        """Yield a client of the command line's own."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket_path))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield ServiceClient(http, place="the service")


@asynccontextmanager
async def command_stage(api: ApiStage, world: FakeWorld, url: str, socket_path: Path) -> AsyncIterator[CommandStage]:
    """Serve the application on a unix socket in the running loop; `url` is its database."""
    way = RecordingMiddleware(api.app)
    api.turns.awaits_reader = True
    world.socket_path = socket_path
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(socket_path))
    owner_id = await api.database.users.get_or_create("local")
    async with api.serving(listener, way):
        yield CommandStage(api, way, world, url, socket_path, owner_id)
        await api.turns.settle()


def _is_stream(request: Request) -> bool:
    return request.headers.get("accept") == MEDIA_TYPE
