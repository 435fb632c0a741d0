"""What `benchmarks.hostile` does to a service: each attack takes its address and key, and ends by itself."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from benchmarks.hostile_provider import ANSWERS
from benchmarks.hostile_texts import send_texts

CONNECTIONS = 8
SECONDS = 5.0
TIMEOUT_SECONDS = 300.0
HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s"
CHUNKED = HEAD % (b"/v1/sessions", b"Transfer-Encoding: chunked\r\n\r\n")
IMPORT_BYTES = 31_000_000
TURNS = 4


@dataclass(frozen=True, slots=True)
class Target:
    """The service; `key` may act as any user."""

    url: str
    key: str

    @property
    def headers(self) -> dict[str, str]:
        """What admits a request."""
        return {"Authorization": f"Bearer {self.key}", "On-Behalf-Of": "hostile"}

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[asyncio.StreamWriter]:
        """Yield a plain connection; nobody reads its answers."""
        address = urlsplit(self.url)
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            yield writer
        finally:
            writer.transport.abort()

    def client(self) -> httpx.AsyncClient:
        """Return a client that is admitted."""
        return httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=TIMEOUT_SECONDS)


Attack = Callable[[Target], Awaitable[None]]


async def _flood(target: Target, first: bytes, piece: bytes) -> None:
    """Send a piece again and again over a few connections."""

    async def send() -> None:
        until = time.monotonic() + SECONDS
        with suppress(OSError):
            async with target.connected() as writer:
                writer.write(first)
                while time.monotonic() < until and not writer.is_closing():
                    writer.write(piece)
                    await writer.drain()

    await asyncio.gather(*(send() for _ in range(CONNECTIONS)))


async def endless_trailer(target: Target) -> None:
    """Send one trailer without end, without a key."""
    await _flood(target, CHUNKED + b"0\r\nX: ", b"y" * 65_536)


async def tiny_trailers(target: Target) -> None:
    """Send trailers without end, without a key."""
    await _flood(target, CHUNKED + b"0\r\n", b"a:\r\n" * 16_384)


async def pipelined_requests(target: Target) -> None:
    """Send requests without waiting for answers, without a key."""
    await _flood(target, b"", b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)


async def rest_of_a_refused_body(target: Target) -> None:
    """Go on sending a body whose request was refused, without a key."""
    await _flood(target, HEAD % (b"/v1/sessions", b"Content-Length: 1000000000000\r\n\r\n"), b"x" * 65_536)


async def heads_of_tiny_headers(target: Target) -> None:
    """Hold many connections with a head of the most bytes, without a key."""
    async with AsyncExitStack() as stack:
        for _ in range(1_000):
            writer = await stack.enter_async_context(target.connected())
            writer.write(b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 16_000)
        await asyncio.sleep(SECONDS)


async def half_sent_imports(target: Target) -> None:
    """Send a hundred imports of one user but for their last byte."""
    admitted = "".join(f"{name}: {value}\r\n" for name, value in target.headers.items())
    head = HEAD % (b"/v1/sessions/import", f"{admitted}Content-Length: {IMPORT_BYTES + 1}\r\n\r\n".encode())

    async def send() -> None:
        with suppress(OSError, TimeoutError):
            async with target.connected() as writer, asyncio.timeout(3 * SECONDS):
                writer.write(head)
                for _ in range(31):
                    writer.write(b" " * (IMPORT_BYTES // 31))
                    await writer.drain()
                await asyncio.sleep(3 * SECONDS)

    await asyncio.gather(*(send() for _ in range(100)))


async def long_messages_searched(target: Target) -> None:
    """Import sixty messages of 500 kB with 200,000 different words, and search them five times."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(200_000)]
    messages = [{"role": "user", "content": " ".join(chance.choices(words, k=55_000))} for _ in range(60)]
    async with target.client() as http:
        body = json.dumps({"agent": "assistant", "messages": messages})
        kind = {"Content-Type": "application/json"}
        (await http.post("/v1/sessions/import", content=body, headers=kind)).raise_for_status()
        for word in words[:5]:
            (await http.get("/v1/search", params={"q": word})).raise_for_status()


async def texts_slow_to_read(target: Target) -> None:
    """Let sixteen clients of a few users send texts that are made to be slow to read."""
    async with target.client() as http:
        await send_texts(http, clients=16, seconds=30)


async def _turn(http: httpx.AsyncClient, agent: str, text: str) -> None:
    opened = await http.post("/v1/sessions", json={"agent": agent})
    await http.post(f"/v1/sessions/{opened.raise_for_status().json()['id']}/messages", json={"content": text})


def _asking(model: str) -> Attack:
    async def ask(target: Target) -> None:
        async with target.client() as http:
            await asyncio.gather(*(_turn(http, model, "ok?") for _ in range(TURNS)))

    return ask


ATTACKS: Mapping[str, Attack] = {
    "one endless trailer (no key)": endless_trailer,
    "endless trailers (no key)": tiny_trailers,
    "pipelined requests (no key)": pipelined_requests,
    "rest of a refused body (no key)": rest_of_a_refused_body,
    "1,000 heads of 64 kB (no key)": heads_of_tiny_headers,
    "100 half-sent imports": half_sent_imports,
    **{f"a provider's {model.replace('-', ' ')}": _asking(model) for model in ANSWERS if model != "fine"},
    "long messages searched": long_messages_searched,
    "texts slow to read": texts_slow_to_read,
}
