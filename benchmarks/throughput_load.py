"""Clients that talk to a chat service in sessions, and how long each of their turns took."""

import asyncio
import itertools
import ssl
import statistics
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from benchmarks.figures import percentile

AGENT = "plain"
TURNS_PER_SESSION = 10
TURN_SECONDS = 120.0
MOST_TRIES = 50
QUESTION = "How do I keep a conversation going for ever without losing what was said at its beginning? Answer {number}."


class Refused(Exception):
    """A service has no room for a client, however often it asks."""


class Post(Protocol):
    """Sends a body to a path, again and again while the service has no room; fails if the answer is no success."""

    async def __call__(self, path: str, body: Mapping[str, object], accept: str = ...) -> httpx.Response: ...


class Talk(Protocol):
    """One session as a client sees it; it sends by what it is given, and fails if it gets no answer."""

    async def open(self, post: Post) -> None:
        """Open the session."""

    async def ask(self, post: Post, question: str) -> None:
        """Take the next turn of it."""


@dataclass(slots=True)
class NativeTalk:
    """A session over our own interface, whose turns are answered as a whole."""

    path: str = ""

    async def open(self, post: Post) -> None:
        """Open the session."""
        created = await post("/v1/sessions", {"agent": AGENT})
        self.path = f"/v1/sessions/{created.json()['id']}/messages"

    async def ask(self, post: Post, question: str) -> None:
        """Take the next turn of it."""
        await post(self.path, {"content": question})


@dataclass(frozen=True, slots=True)
class Measured:
    """Sessions in so many seconds, and what each of their turns took.

    `refused` counts the answers 503: the client sent the same again after as long as it was told to wait, and all of
    that is part of its turn.
    """

    seconds: float
    sessions: tuple[tuple[float, ...], ...]
    refused: int = 0

    @property
    def turns(self) -> tuple[float, ...]:
        """What each turn took, whatever its session."""
        return tuple(itertools.chain.from_iterable(self.sessions))

    @property
    def rate(self) -> float:
        """Turns per second."""
        return len(self.turns) / self.seconds

    @property
    def fairness(self) -> float:
        """The mean turn of the slowest session over the mean turn of the median session: 1 is perfectly fair.

        Every session counts, one that the end of the measurement cut short too: a session that hangs has few turns.
        """
        means = [statistics.fmean(session) for session in self.sessions]
        return max(means) / statistics.median(means)

    def milliseconds(self, percent: int) -> float:
        """Return what this percentage of the turns was answered in."""
        return 1000 * percentile(self.turns, percent)


async def press(url: str, clients: int, seconds: float, talk: Callable[[], Talk] = NativeTalk) -> Measured:
    """Return the turns that so many clients got who never pause; a session that was begun has one turn at least.

    `talk` makes what a client does with one session.

    Each client has a pool of its own: one pool for all takes time in the square of their number, more than turns.
    """
    tls = ssl.create_default_context()  # one for all: making it takes longer than a turn, and nobody uses it
    async with AsyncExitStack() as stack:
        https = [httpx.AsyncClient(base_url=url, timeout=TURN_SECONDS, verify=tls) for _ in range(clients)]
        for http in https:
            await stack.enter_async_context(http)
        began = time.monotonic()
        talking = [_Client(http, began + seconds, talk) for http in https]
        await asyncio.gather(*(client.talk() for client in talking))
        return Measured(
            seconds=time.monotonic() - began,
            sessions=tuple(tuple(turns) for client in talking for turns in client.sessions if turns),
            refused=sum(client.refused for client in talking),
        )


@dataclass(slots=True)
class _Client:
    """Talks until it is time, and has one turn at least; what is refused for now it sends again."""

    http: httpx.AsyncClient
    until: float
    make_talk: Callable[[], Talk]
    sessions: list[list[float]] = field(default_factory=list)
    refused: int = 0

    async def talk(self) -> None:
        while time.monotonic() < self.until:
            talk = self.make_talk()
            await talk.open(self._post)
            self.sessions.append([])
            await self._session(talk)

    async def _session(self, talk: Talk) -> None:
        for number in range(TURNS_PER_SESSION):
            if self.sessions[0] and time.monotonic() >= self.until:
                break
            began = time.monotonic()
            await talk.ask(self._post, QUESTION.format(number=number))
            self.sessions[-1].append(time.monotonic() - began)

    async def _post(self, path: str, body: Mapping[str, object], accept: str = "*/*") -> httpx.Response:
        """Return the answer; a request that comes again is the same one by its key."""
        headers = {"Idempotency-Key": uuid.uuid4().hex, "Accept": accept}
        for _ in range(MOST_TRIES):
            response = await self.http.post(path, json=body, headers=headers)
            if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                return response.raise_for_status()
            self.refused += 1
            await asyncio.sleep(float(response.headers.get("Retry-After", 1)))
        raise Refused(f"{path} was refused {MOST_TRIES} times")
