"""What hostile clients and providers do to a running service, and what a healthy user beside them notices.

`python -m benchmarks.hostile`. One attack after the other (`benchmarks.hostile_attacks`); for each the service's memory
at its peak so far, the longest stall of its event loop, and the turns of a healthy user. Exits with 1 if an aim is
missed: MEMORY_MB, STALL_MS, or a healthy turn that failed.
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from benchmarks.figures import peak_mb
from benchmarks.hostile_provider import ANSWERS
from benchmarks.measured_service import FILE, read_stalls
from benchmarks.processes import run_server, run_service, write_agent

CONNECTIONS = 8
SECONDS = 5.0
TIMEOUT_SECONDS = 300.0
HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s"
CHUNKED = HEAD % (b"/v1/sessions", b"Transfer-Encoding: chunked\r\n\r\n")
IMPORT_BYTES = 31_000_000
TURNS = 4
TEXT_BYTES = 1_000_000
TEXT_CLIENTS, TEXT_USERS = 16, 8
TEXTS_SECONDS = 30.0
SUMMARY_EVERY = 4
"""Texts of a client between two summaries on demand."""


class BrokenAnswer(Exception):
    """The service answered with an internal error."""


async def _refuse_broken_answers(answer: httpx.Response) -> None:
    if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
        raise BrokenAnswer(f"{answer.request.url}: {(await answer.aread())[:500]!r}")


@dataclass(frozen=True, slots=True)
class Target:
    """The service; `key` may act as any user."""

    url: str
    key: str

    def headers(self, user: str = "hostile") -> dict[str, str]:
        """Return what admits a request of a user."""
        return {"Authorization": f"Bearer {self.key}", "On-Behalf-Of": user}

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[asyncio.StreamWriter]:
        """Yield a plain connection; nobody reads its answers."""
        address = urlsplit(self.url)
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            yield writer
        finally:
            writer.transport.abort()

    def client(self, user: str = "hostile") -> httpx.AsyncClient:
        """Return a client that is admitted."""
        return httpx.AsyncClient(base_url=self.url, headers=self.headers(user), timeout=TIMEOUT_SECONDS)


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
    admitted = "".join(f"{name}: {value}\r\n" for name, value in target.headers().items())
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


def slow_texts(size: int) -> list[str]:
    """Return one text of about `size` bytes for each kind that is made to be slow to read."""
    chance = random.Random(1)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return [
        "x" + " " * size + "x",
        "<" + " " * 60_000 + "x" + "<" * size,
        "\"'" * (size // 4),
        "1 " * (size // 2),
        "漢字仮名" * (size // 12),
        "".join(chance.choices(letters, k=size)),
        '{"a":[' * (size // 8) + "]}" * (size // 8),
        ("a" + "\u0301\u0327\u0335" * 5) * (size // 31),
    ]


async def texts_slow_to_read(target: Target) -> None:
    """Let clients of a few users send such texts and short questions by turns, and have summaries made now and then."""
    texts, until = slow_texts(TEXT_BYTES), time.monotonic() + TEXTS_SECONDS

    async def talk(number: int) -> None:
        async with target.client(f"hostile-{number % TEXT_USERS}") as http:
            http.event_hooks = {"response": [_refuse_broken_answers]}
            session = await _open_session(http, "assistant")
            for turn in itertools.count(number):
                if time.monotonic() >= until:
                    return
                await http.post(f"{session}/messages", json={"content": texts[turn % len(texts)]})
                await http.post(f"{session}/messages", json={"content": "ok?"})
                if turn % SUMMARY_EVERY == 0:
                    await http.post(f"{session}/summarize", json={})

    await asyncio.gather(*map(talk, range(TEXT_CLIENTS)))


async def _open_session(http: httpx.AsyncClient, agent: str) -> str:
    opened = await http.post("/v1/sessions", json={"agent": agent})
    return f"/v1/sessions/{opened.raise_for_status().json()['id']}"


def _asking(model: str) -> Attack:
    async def ask(target: Target) -> None:
        async with target.client() as http:
            sessions = [await _open_session(http, model) for _ in range(TURNS)]
            await asyncio.gather(*(http.post(f"{path}/messages", json={"content": "ok?"}) for path in sessions))

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


MEMORY_MB = 600.0
STALL_MS = 250.0
PAUSE_SECONDS = 2.0
KEY = "a-key-for-the-benchmark-of-attacks"
ENVIRONMENT = {"BOOTSTRAP_API_KEY": KEY, "LOG_LEVEL": "ERROR", "TURN_TIMEOUT_SECONDS": "20"}
"""The time limit is the only bound that a provider's endless answer would meet if no other held; its default is 300."""

HOSTILE_HEAD = """\
| attack | s | MB peak | stall ms | healthy turns | failed | slowest s |
|:-------|--:|--------:|---------:|--------------:|-------:|----------:|"""


@dataclass(slots=True)
class Healthy:
    """A healthy user's turns during one attack, in seconds, and how many failed."""

    http: httpx.AsyncClient
    turns: list[float]
    failures: int = 0

    async def talk(self) -> None:
        """Send a message each second, for ever."""
        opened = await self.http.post("/v1/sessions", json={"agent": "fine"})
        path = f"/v1/sessions/{opened.raise_for_status().json()['id']}/messages"
        while True:
            began = time.monotonic()
            answer = await self.http.post(path, json={"content": "How are you?"})
            self.turns.append(time.monotonic() - began)
            self.failures += not answer.is_success
            await asyncio.sleep(1)


@dataclass(frozen=True, slots=True)
class Row:
    """What one attack did."""

    peak_mb: float
    stall_ms: float
    turns: tuple[float, ...]
    failures: int


async def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, measure and print; return 1 if an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--only", default="", help="attacks with this in their names")
    only: str = parser.parse_args(arguments).only
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile-")))
        provider = stack.enter_context(run_server(["benchmarks.hostile_provider"], folder, {}, probe="/"))
        for model in ANSWERS:
            write_agent(folder, model, model=f"openai:{model}", base_url=f"{provider.url}/v1")
        notes = folder / "stalls"
        environment = {FILE: str(notes), **ENVIRONMENT}
        service = stack.enter_context(run_service(folder, environment, module="benchmarks.measured_service"))
        target = Target(service.url, KEY)
        print(HOSTILE_HEAD, flush=True)
        async with _talking(target) as healthy:
            for name in (name for name in ATTACKS if only in name):
                seconds, stalls = await _attack(ATTACKS[name], target, healthy, notes)
                rows.append(Row(peak_mb(service.pid), max(stalls), tuple(healthy.turns), healthy.failures))
                print(f"| {name} | {seconds:.0f} | {_cells(rows[-1])} |", flush=True)
    return _judge(rows)


@asynccontextmanager
async def _talking(target: Target) -> AsyncGenerator[Healthy]:
    async with httpx.AsyncClient(base_url=target.url, headers=target.headers("healthy"), timeout=60) as http:
        healthy = Healthy(http, [])
        talk = asyncio.create_task(healthy.talk())
        try:
            yield healthy
        finally:
            talk.cancel()
            await asyncio.gather(talk, return_exceptions=True)


async def _attack(attack: Attack, target: Target, healthy: Healthy, notes: Path) -> tuple[float, list[float]]:
    """Return how long an attack took, and the stalls meanwhile."""
    await asyncio.sleep(PAUSE_SECONDS)
    healthy.turns, healthy.failures = [], 0
    read_stalls(notes)
    began = time.monotonic()
    await attack(target)
    seconds = time.monotonic() - began
    await asyncio.sleep(PAUSE_SECONDS)  # what it left behind, and a healthy turn after it
    return seconds, read_stalls(notes)


def _cells(row: Row) -> str:
    seen = f"{len(row.turns)} | {row.failures} | {max(row.turns, default=0.0):.2f}"
    return f"{row.peak_mb:.0f} | {row.stall_ms:.0f} | {seen}"


def _judge(rows: Sequence[Row]) -> int:
    memory, stall = max(row.peak_mb for row in rows), max(row.stall_ms for row in rows)
    failures = sum(row.failures for row in rows)
    print(
        f"\nmemory at its peak {memory:.0f} MB (aim {MEMORY_MB:.0f}), longest stall {stall:.0f} ms (aim {STALL_MS:.0f})"
    )
    print(f"healthy turns {sum(len(row.turns) for row in rows)}, failed {failures}")
    return 0 if memory <= MEMORY_MB and stall <= STALL_MS and not failures else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
