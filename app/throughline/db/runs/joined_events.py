"""Joins the events of several runs into one statement, so that many concurrent turns take few statements.

`EventRepository` gives each batch of events here. Batches that come while a statement is under way share the next one.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from throughline.domain.errors import TemporaryError, ThroughlineError
from throughline.domain.events import NewEvent
from throughline.domain.run import Lease

MOST_JOINED = 100
"""Most runs whose events one statement stores."""


class StoreResult(Enum):
    """What became of the events of one run: stored, not stored because of a lock or because the lease is lost."""

    STORED = "stored"
    LOCKED = "locked"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of one run, and the right to store them."""

    lease: Lease
    events: Sequence[NewEvent]


class Write(Protocol):
    """Stores the events of several runs, each run at most once, in one statement."""

    async def __call__(self, batches: Collection[EventBatch], *, waits: bool) -> Mapping[Lease, StoreResult]:
        """Return the result for each lease. With `waits` it waits for locked rows of runs, so none is `LOCKED`."""
        ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Events that wait for a statement; `context` is the one in which they were given, for traces."""

    batch: EventBatch
    context: Context = field(default_factory=copy_context)
    result: "asyncio.Future[StoreResult]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


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

    async def store(self, batch: EventBatch) -> StoreResult:
        """Store the events with those of other runs; return STORED or LOST. Raises the errors of `write`."""
        waiting = _Waiting(batch)
        self._waiting.append(waiting)
        self._store_next()
        return await waiting.result

    def _store_next(self) -> None:
        if self._storing is None and self._waiting:
            context = self._waiting[0].context
            self._storing = asyncio.create_task(self._store_joined(), name="store joined run events", context=context)
            self._storing.add_done_callback(self._has_stored)

    def _has_stored(self, storing: asyncio.Task[None]) -> None:
        self._storing = None
        _retrieve_error(storing)
        self._store_next()

    async def _store_joined(self) -> None:
        joined = self._take()
        for one, result in zip(joined, await self._write_joined(joined), strict=True):
            if result is StoreResult.LOCKED:
                alone = asyncio.create_task(self._store_alone(one), context=one.context)
                self._alone.add(alone)
                alone.add_done_callback(self._alone.discard)
                alone.add_done_callback(_retrieve_error)
            elif not one.result.done():
                one.result.set_result(result)

    async def _write_joined(self, joined: Sequence[_Waiting]) -> Sequence[StoreResult]:
        """Return the result for each run; LOCKED for all if the statement failed because of one of them."""
        try:
            results = await self._write([one.batch for one in joined], waits=False)
        except TemporaryError as error:
            _fail(joined, error)
            raise
        except ThroughlineError:
            return [StoreResult.LOCKED] * len(joined)
        except Exception as error:
            _fail(joined, error)
            raise
        return [results[one.batch.lease] for one in joined]

    async def _store_alone(self, one: _Waiting) -> None:
        try:
            results = await self._write([one.batch], waits=True)
        except Exception as error:
            _fail([one], error)
            raise
        if not one.result.done():  # it is cancelled if nobody waits for it any more
            one.result.set_result(results[one.batch.lease])

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


def _fail(waiting: Sequence[_Waiting], error: Exception) -> None:
    for one in waiting:
        if not one.result.done():
            one.result.set_exception(error)


def _retrieve_error(task: asyncio.Task[None]) -> None:
    """Retrieve the task's error, which those who wait for its events are given."""
    if not task.cancelled():
        task.exception()
