"""Joins the events of several runs into one statement, so that many concurrent turns take few statements.

`EventRepository` gives each batch of events here. Batches that come while a statement is under way share the next one.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from throughline.domain.errors import TemporaryError
from throughline.domain.events import NewEvent
from throughline.domain.run import Lease
from throughline.execution.error_boundary import Outcome, Raised, Returned, outcome_of_awaiting

MOST_JOINED = 100
"""Most runs whose events one statement stores."""


class Result(Enum):
    """What became of the events of one run: stored, not stored because of a lock or because the lease is lost."""

    STORED = "stored"
    LOCKED = "locked"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class RunEvents:
    """Events of one run, and the right to store them."""

    lease: Lease
    events: Sequence[NewEvent]


class Write(Protocol):
    """Stores the events of several runs, each run at most once, in one statement."""

    async def __call__(self, batches: Collection[RunEvents], *, waits: bool) -> Mapping[Lease, Result]:
        """Return the result for each lease. With `waits` it waits for locked rows of runs, so none is `LOCKED`."""
        ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Events that wait for a statement; `context` is the one in which they were given, for traces."""

    batch: RunEvents
    context: Context = field(default_factory=copy_context)
    result: "asyncio.Future[Outcome[Result]]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class JoinedEvents:
    """Stores events through `write`, one statement at a time with the events of all runs that wait for it.

    A run whose row is locked, and each run of a statement that failed for another cause than the database's absence, is
    stored alone. So no run delays or breaks another one.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[_Waiting] = []
        self._storing: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()

    async def store(self, batch: RunEvents) -> Result:
        """Store the events with those of other runs; return STORED or LOST. Raises the errors of `write`."""
        waiting = _Waiting(batch)
        self._waiting.append(waiting)
        self._store_next()
        match await waiting.result:
            case Raised(error):
                raise error
            case Returned(result):
                return result

    def _store_next(self) -> None:
        if self._storing is None and self._waiting:
            context = self._waiting[0].context
            self._storing = asyncio.create_task(self._store_joined(), name="store joined run events", context=context)
            self._storing.add_done_callback(self._has_stored)

    def _has_stored(self, _storing: asyncio.Task[None]) -> None:
        self._storing = None
        self._store_next()

    async def _store_joined(self) -> None:
        joined = self._take()
        if len(joined) == 1:
            await self._store_alone(joined[0])
            return
        outcome = await outcome_of_awaiting(self._write([one.batch for one in joined], waits=False))
        for one in joined:
            match outcome:
                case Returned(results) if results[one.batch.lease] is not Result.LOCKED:
                    _answer(one, Returned(results[one.batch.lease]))
                case Raised(TemporaryError() as error):
                    _answer(one, Raised(error))
                case _:
                    task = asyncio.create_task(self._store_alone(one), context=one.context)
                    self._alone.add(task)
                    task.add_done_callback(self._alone.discard)

    async def _store_alone(self, one: _Waiting) -> None:
        lease = one.batch.lease
        match await outcome_of_awaiting(self._write([one.batch], waits=True)):
            case Returned(results):
                _answer(one, Returned(results[lease]))
            case Raised(error):
                _answer(one, Raised(error))

    def _take(self) -> list[_Waiting]:
        """Take the events of up to MOST_JOINED runs; those of a run that is among them already wait on."""
        taken: dict[Lease, _Waiting] = {}
        left: list[_Waiting] = []
        for one in self._waiting:
            is_taken = one.batch.lease not in taken and len(taken) < MOST_JOINED
            if is_taken:
                taken[one.batch.lease] = one
            else:
                left.append(one)
        self._waiting = left
        return list(taken.values())


def _answer(one: _Waiting, outcome: Outcome[Result]) -> None:
    if not one.result.done():  # it is cancelled if nobody waits for it any more
        one.result.set_result(outcome)
