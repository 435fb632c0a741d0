"""How long the service answers nobody while many clients send it texts that are made to be slow to read.

`python -m benchmarks.loop_stall`. Each client has a session with the default agent, sends one hostile text of about a
megabyte after the other, asks a short question, and has a summary made now and then. The clients belong to a few
users; beside them ordinary users send a short text each second. Printed are the longest stall of the event loop (a
ticker inside the process), what was answered, how long the ordinary users waited, and the service's memory before and
after. Exits with 1 if the aim is missed or a request got a 500.
"""

import argparse
import asyncio
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from benchmarks.processes import free_port, run_server
from benchmarks.ticking_service import COUNTED_MS, FILE

AIM_MS = 250.0
BROKEN = httpx.codes.INTERNAL_SERVER_ERROR
TIMEOUT_SECONDS = 300.0
KEY = "a-key-for-the-benchmark-of-stalls"
HOSTILE_USERS = 8
ORDINARY_USERS = 4
ORDINARY = "ordinary users"
SUMMARY_EVERY = 4
"""Messages of a client between two summaries on demand."""


def hostile_texts(size: int) -> dict[str, str]:
    """Return one text of about `size` bytes for each kind."""
    chance = random.Random(1)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return {
        "blanks": "x" + " " * size + "x",
        "angle brackets": "<" + " " * 60_000 + "x" + "<" * size,
        "quotes": "\"'" * (size // 4),
        "digits": "1 " * (size // 2),
        "cjk": "漢字仮名" * (size // 12),
        "base64": "".join(chance.choices(letters, k=size)),
        "nested json": '{"a":[' * (size // 8) + "]}" * (size // 8),
        "zalgo": ("a" + "\u0301\u0327\u0335" * 5) * (size // 31),
    }


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if the aim is missed."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory(prefix="loop-stall-") as name:
        folder, port = Path(name), free_port()
        ticks = folder / "ticks"
        command = [sys.executable, "-m", "benchmarks.ticking_service", "serve", "--port", str(port)]
        command += ["--data-dir", str(folder / "data")]
        url = f"http://127.0.0.1:{port}"
        probe = (f"{url}/health/ready", folder / "service.log")
        environment = {"LOG_LEVEL": "ERROR", "BOOTSTRAP_API_KEY": KEY, FILE: str(ticks)}
        with run_server(command, probe, environment) as pid:
            service = psutil.Process(pid)
            ticks.write_text("0 0")
            before = service.memory_info().rss
            clients = Clients(url, hostile_texts(options.bytes))
            await clients.run(options.clients, options.seconds)
            longest_ms, count = ticks.read_text().split()
            after = service.memory_info().rss
    print(clients.table())
    print(f"longest stall {longest_ms} ms (aim {AIM_MS:.0f}), stalls over {COUNTED_MS:.0f} ms: {count}")
    print(f"memory {before / 1e6:.0f} MB before, {after / 1e6:.0f} MB after")
    return 0 if float(longest_ms) <= AIM_MS and not clients.broken else 1


class Clients:
    """Sends the texts and counts what comes back."""

    def __init__(self, url: str, texts: dict[str, str]) -> None:
        """Nothing is sent before `run`."""
        self._url = url
        self._texts = texts
        self._statuses: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, list[float]] = {}

    @property
    def broken(self) -> int:
        """How many answers were an internal error."""
        return sum(
            count for (_, status), count in self._statuses.items() if status == httpx.codes.INTERNAL_SERVER_ERROR
        )

    async def run(self, number: int, seconds: float) -> None:
        """Let so many clients talk for so long; those that wait then are waited for."""
        limits = httpx.Limits(max_connections=None)
        headers = {"Authorization": f"Bearer {KEY}"}
        timeout = httpx.Timeout(TIMEOUT_SECONDS)
        async with httpx.AsyncClient(base_url=self._url, timeout=timeout, limits=limits, headers=headers) as http:
            until = time.monotonic() + seconds
            hostile = (self._talk(_User(http, f"hostile-{n % HOSTILE_USERS}"), n, until) for n in range(number))
            ordinary = (self._chat(_User(http, f"ordinary-{n}"), until) for n in range(ORDINARY_USERS))
            await asyncio.gather(*hostile, *ordinary)

    def table(self) -> str:
        """Return what became of the requests as a Markdown table."""
        lines = ["| text | answers by status | median s | slowest s |", "|---|---|---:|---:|"]
        for name, seconds in self._seconds.items():
            counts = ", ".join(
                f"{status}: {count}" for (of, status), count in sorted(self._statuses.items()) if of == name
            )
            lines.append(f"| {name} | {counts} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |")
        return "\n".join(lines)

    async def _talk(self, user: "_User", first: int, until: float) -> None:
        """Send one hostile text after the other, each followed by a short question."""
        session = await user.open_session()
        names = list(self._texts)
        for turn in itertools.count(first):
            if time.monotonic() >= until:
                return
            name = names[turn % len(names)]
            await self._send(user, name, f"{session}/messages", {"content": self._texts[name]})
            await self._send(user, "a short question", f"{session}/messages", {"content": "ok?"})
            if turn % SUMMARY_EVERY == 0:
                await self._send(user, "summarize", f"{session}/summarize", {})

    async def _chat(self, user: "_User", until: float) -> None:
        """Send a short text each second."""
        session = await user.open_session()
        while time.monotonic() < until:
            await self._send(user, ORDINARY, f"{session}/messages", {"content": "What is the time?"})
            await asyncio.sleep(1)

    async def _send(self, user: "_User", name: str, path: str, body: dict[str, str]) -> None:
        began = time.monotonic()
        response = await user.post(path, body)
        self._statuses[name, response.status_code] += 1
        self._seconds.setdefault(name, []).append(time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class _User:
    """One of the service's users."""

    http: httpx.AsyncClient
    name: str

    async def post(self, path: str, body: dict[str, str]) -> httpx.Response:
        return await self.http.post(path, json=body, headers={"On-Behalf-Of": self.name})

    async def open_session(self) -> str:
        opened = await self.post("/v1/sessions", {"agent": "assistant"})
        return f"/v1/sessions/{opened.raise_for_status().json()['id']}"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loop_stall", description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--bytes", type=int, default=1_000_000, help="size of a hostile text")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
