"""A client that asks again and again while a server is away, and writes down by the second what it was told."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from chaos.findings import Fault, Finding
from chaos.stored import Stored

ASK_SECONDS = 0.1
TIMEOUT_SECONDS = 15.0


@dataclass(slots=True)
class Asker:
    """Makes a session every tenth of a second. `told` are times and answers, `sessions` those that were made."""

    url: str
    http: httpx.AsyncClient
    told: list[tuple[float, str]] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)

    async def ask(self) -> None:
        """Ask until cancelled."""
        while True:
            answer = await self._answer()
            self.told.append((time.monotonic(), answer))
            await asyncio.sleep(ASK_SECONDS)

    async def _answer(self) -> str:
        try:
            response = await self.http.post(f"{self.url}/v1/sessions", json={"agent": "plain"})
            if response.is_success:
                self.sessions.append(str(response.json()["id"]))
                return str(response.status_code)
            ready = await self.http.get(f"{self.url}/health/ready")
        except httpx.TransportError as error:
            return type(error).__name__
        self.reasons |= set(ready.json().get("reasons", {}).values())
        return f"{response.status_code} with Retry-After {response.headers.get('Retry-After', 'missing')}"

    def check(self, stored: Stored) -> Iterator[Finding]:
        """Yield the sessions that were made and are not stored."""
        for session in set(self.sessions) - {one.id for one in stored.sessions}:
            yield Finding(Fault.LOST, f"session {session} was made and is not stored")

    def notes(self, since: float) -> tuple[str, ...]:
        """Return what was told in each second after `since`, up to the first second of nothing but success."""
        by_second: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for at, answer in self.told:
            if at >= since:
                by_second[int(at - since)][answer] += 1
        lines: list[str] = []
        for second in sorted(by_second):
            lines.append(f"second {second}: " + ", ".join(f"{n} x {told}" for told, n in by_second[second].items()))
            if set(by_second[second]) == {"201"} and len(lines) > 1:
                break
        return (*lines, *(f"/health/ready says: {reason}" for reason in sorted(self.reasons)))

    def first_success(self, since: float) -> float:
        """Return how many seconds passed from `since` to the first success."""
        return next((at - since for at, answer in self.told if at >= since and answer == "201"), float("inf"))


@asynccontextmanager
async def asking(url: str) -> AsyncGenerator[Asker]:
    """Keep an asker at work inside the block."""
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as http:
        asker = Asker(url, http)
        task = asyncio.create_task(asker.ask())
        try:
            yield asker
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
