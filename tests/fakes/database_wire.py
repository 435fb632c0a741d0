"""Stands between us and PostgreSQL: reads what is asked, counts round trips, and can swallow the answer to a commit."""

import asyncio
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sqlalchemy import make_url

from throughline.db.connection.address import Host, parse_address

LENGTH = struct.Struct("!I")
CANCEL = 80877102
REQUESTS = frozenset({CANCEL, 80877103, 80877104})
"""Cancel, TLS and GSS: what may come in the place of a startup message, or before it."""

OF_DRIVER = ("typeinfo_tree", "current_setting('jit')", "select set_config('transaction_timeout', '20s', false)")
"""In what a connection asks once, about types and for its settings: no statements of an intent."""

WRITES = ("insert into ", "update ", "delete from ", "pg_notify")


@dataclass(slots=True)
class DatabaseWire:
    """Passes everything on. `statements` are those executed so far, in order; `round_trips` what was waited for.

    `commits` are the transactions that may have written: a statement that changes something outside of any counts as
    one. `cancels` counts requests to cancel a statement. After `cut_next` the next commit is done, and its connection
    then cut unanswered.
    """

    url: str = ""
    cuts: int = 0
    statements: list[str] = field(default_factory=list)
    round_trips: int = 0
    commits: int = 0
    cancels: int = 0
    _wanted: int = 0

    def clear(self) -> None:
        """Count from here on."""
        self.statements.clear()
        self.round_trips = 0
        self.commits = 0

    def cut_next(self, times: int = 1) -> None:
        """Leave so many commits unanswered."""
        self._wanted = times

    async def serve(self, server: Host, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join one client with the server, until either goes or a commit is to stay unanswered."""
        server_reader, server_writer = await _connect(server)
        client = _Client(self)
        answered = asyncio.create_task(_pass_on(server_reader, writer, lambda _: True))
        asked = asyncio.create_task(_pass_on(reader, server_writer, client.read))
        try:
            await asyncio.wait({answered, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()
            asked.cancel()
            await asyncio.gather(answered, asked, return_exceptions=True)
            server_writer.close()
            writer.close()

    def is_to_be_answered(self, commits: int) -> bool:
        """Whether the connection that has just asked for so many commits goes on."""
        self.commits += commits
        if not commits or not self._wanted:
            return True
        self._wanted -= 1
        self.cuts += 1
        return False


class _Client:
    """What one connection asks, by PostgreSQL's frontend protocol."""

    def __init__(self, wire: DatabaseWire) -> None:
        self._wire = wire
        self._read = b""
        self._has_started = False
        self._is_inside = False
        self._prepared: dict[bytes, str] = {}

    def read(self, data: bytes) -> bool:
        """Take in what was sent; whether the connection goes on."""
        self._read += data
        asked: list[str] = []
        while (message := self._next()) is not None:
            kind, body = message
            asked += self._executed(kind, body)
            self._wire.round_trips += kind in {b"Q", b"S"}
        self._wire.statements += [statement for statement in asked if not any(word in statement for word in OF_DRIVER)]
        return self._wire.is_to_be_answered(sum(self._is_commit(statement) for statement in asked))

    def _next(self) -> tuple[bytes, bytes] | None:
        """Return the next message whole, with its kind: empty before the connection has started."""
        kind_bytes = 1 if self._has_started else 0
        if len(self._read) < kind_bytes + LENGTH.size:
            return None
        end = kind_bytes + LENGTH.unpack_from(self._read, kind_bytes)[0]
        if len(self._read) < end:
            return None
        kind, body = self._read[:kind_bytes], self._read[kind_bytes + LENGTH.size : end]
        self._read = self._read[end:]
        if not self._has_started:
            code = LENGTH.unpack_from(body)[0]
            self._has_started = code not in REQUESTS
            self._wire.cancels += code == CANCEL
        return kind, body

    def _is_commit(self, statement: str) -> bool:
        is_end = statement in {"commit", "rollback"}
        was_inside, self._is_inside = self._is_inside, statement == "begin" or (self._is_inside and not is_end)
        return statement == "commit" or (not was_inside and any(word in statement for word in WRITES))

    def _executed(self, kind: bytes, body: bytes) -> list[str]:
        match kind:
            case b"P":
                name, query, _ = body.split(b"\0", 2)
                self._prepared[name] = query.decode()
            case b"B":
                _, name, _ = body.split(b"\0", 2)
                return [self._prepared[name]]
            case b"Q":
                return [body.rstrip(b"\0").decode()]
            case _:
                pass
        return []


async def _connect(server: Host) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name = server.name or "localhost"
    if name.startswith("/"):
        return await asyncio.open_unix_connection(f"{name}/.s.PGSQL.{server.port}")
    return await asyncio.open_connection(name, server.port)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, goes_on: Callable[[bytes], bool]
) -> None:
    """Pass everything on, up to what `goes_on` says no to, included."""
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
        if not goes_on(data):
            return


@asynccontextmanager
async def database_wire(database_url: str) -> AsyncGenerator[DatabaseWire]:
    """Yield a stand-in for the server at `database_url`; its own address is `url`."""
    [host] = parse_address(database_url).hosts
    wire = DatabaseWire()
    server = await asyncio.start_server(lambda r, w: wire.serve(host, r, w), "127.0.0.1", 0)
    taken = server.sockets[0].getsockname()[1]
    wire.url = make_url(database_url).set(host="127.0.0.1", port=taken, query={}).render_as_string(hide_password=False)
    try:
        yield wire
    finally:
        server.close()
