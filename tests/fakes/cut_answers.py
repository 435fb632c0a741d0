"""Stands between us and PostgreSQL, and swallows the answer to a commit: done there, unknown here."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url

COMMIT = b"COMMIT"


@dataclass(slots=True)
class CutAnswers:
    """Passes everything on; after `cut_next` the next commit is done, and its connection then cut unanswered."""

    url: str = ""
    cuts: int = 0
    _wanted: int = 0

    def cut_next(self, times: int = 1) -> None:
        self._wanted = times

    async def serve(self, socket_path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join one client with the server, until either goes or a commit is to stay unanswered."""
        server_reader, server_writer = await asyncio.open_unix_connection(str(socket_path))
        answered = asyncio.create_task(_pass_on(server_reader, writer, lambda _: True))
        asked = asyncio.create_task(_pass_on(reader, server_writer, self._is_to_be_answered))
        try:
            await asyncio.wait({answered, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()
            asked.cancel()
            await asyncio.gather(answered, asked, return_exceptions=True)
            server_writer.close()
            writer.close()

    def _is_to_be_answered(self, data: bytes) -> bool:
        if COMMIT not in data or not self._wanted:
            return True
        self._wanted -= 1
        self.cuts += 1
        return False


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
async def cut_answers(database_url: str) -> AsyncGenerator[CutAnswers]:
    """Yield a stand-in for the server at `database_url`, which is reached over a unix socket; its own is `url`."""
    real = make_url(database_url)
    folder, port = real.query["host"], real.query.get("port", "5432")
    between = CutAnswers()
    path = Path(str(folder)) / f".s.PGSQL.{port}"
    server = await asyncio.start_server(lambda r, w: between.serve(path, r, w), "127.0.0.1", 0)
    taken = server.sockets[0].getsockname()[1]
    between.url = real.set(host="127.0.0.1", port=taken, query={}).render_as_string(hide_password=False)
    try:
        yield between
    finally:
        server.close()
