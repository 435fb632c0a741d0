"""A client of HTTP over a plain socket, which can be as slow, silent or wrong as a test needs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One answer: its status, its headers by lower-case name, its body."""

    status: int
    headers: dict[str, str]
    body: bytes


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        """Send what is given, as it is."""
        self._writer.write(data)

    async def drip(self, data: bytes, seconds: float) -> None:
        """Send one byte after the other with a pause between, until the server closes or all is sent."""
        for byte in data:
            if self._reader.at_eof() or self._writer.is_closing():
                return
            self._writer.write(bytes([byte]))
            await asyncio.sleep(seconds)

    async def answer(self) -> RawAnswer:
        """Return the next answer, whose length must be declared."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.splitlines()
            pairs = [line.split(": ", 1) for line in lines if line]
            headers = {name.lower(): value for name, value in pairs}
            body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return RawAnswer(int(status.split()[1]), headers, body)

    async def rest(self) -> bytes:
        """Return what comes until the server closes; b'' too where it aborts."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    def close(self) -> None:
        """Close."""
        self._writer.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RawClient]:
    """Yield a connection to the server at `url`."""
    address = urlsplit(url)
    client = RawClient(*await asyncio.open_connection(address.hostname, address.port))
    try:
        yield client
    finally:
        client.close()
