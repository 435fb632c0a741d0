"""The loop that claims leased work, does it under a heartbeat, and hands back what it is stopped in."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from throughline.domain.errors import ThroughlineError, places_of
from throughline.domain.lease import RowLease
from throughline.execution.error_boundary import ErrorBoundary
from throughline.execution.heartbeats import Heartbeats
from throughline.execution.running_beside import running_beside

AFTER_OUTAGE_SECONDS = 2.0
"""From a claim that reached no database to the next: longer than between two heartbeats then.

So holders renew their leases (execution/heartbeats.py) before anybody claims what seems to be left."""

log = structlog.get_logger(__name__)


class Claimed(Protocol):
    """A claimed row."""

    @property
    def lease(self) -> RowLease:
        """The right to write for it."""
        ...


C = TypeVar("C", bound=Claimed)


class LeasedWork(Protocol[C]):
    """What a loop does: side jobs, Slack deliveries."""

    async def claim(self, late: Sequence[RowLease]) -> Sequence[C]:
        """Claim what there is room for, but no row of the `late` leases, held here. Raises ThroughlineError."""
        ...

    async def perform(self, claimed: C) -> None:
        """Do the work and store its end. It is cancelled if the lease is lost or the loop is stopped."""
        ...

    async def put_back(self, claimed: C) -> None:
        """Put the row back as untried. Raises ThroughlineError."""
        ...

    async def seconds_after_loss(self, claimed: C) -> float:
        """Return how long the work may go on after its lease was lost."""
        ...


class WorkSignal(Protocol):
    """Wakes a loop when there may be work."""

    async def wait(self, timeout_seconds: float) -> bool:
        """Return when woken, or after the timeout; whether it was woken."""
        ...

    def wake(self) -> None:
        """End a wait now."""
        ...


@dataclass(frozen=True, slots=True)
class LoopPauses:
    """How long a loop waits: for work without a signal, and after a claim that was not answered."""

    poll_seconds: float
    after_outage_seconds: float = AFTER_OUTAGE_SECONDS


class LeaseLoop(Generic[C]):
    """Claims and works while `run` runs; whatever the database does, it is tried again."""

    def __init__(
        self, work: LeasedWork[C], heartbeats: Heartbeats[RowLease], signal: WorkSignal, pauses: LoopPauses
    ) -> None:
        """Nothing is claimed before `run`."""
        self._work = work
        self._heartbeats = heartbeats
        self._signal = signal
        self._pauses = pauses
        self._held: dict[asyncio.Task[None], C] = {}
        self._closed = asyncio.Event()
        self._is_answered = False
        self._answered_at = float("-inf")

    @property
    def held(self) -> tuple[C, ...]:
        """What is under way."""
        return tuple(self._held.values())

    @property
    def is_claiming(self) -> bool:
        """Whether the loop is open and the last claim was answered."""
        return not self._closed.is_set() and self._is_answered

    def has_claimed_within(self, seconds: float) -> bool:
        """Whether the loop is open and a claim was answered so long ago at most."""
        return self.is_claiming or (not self._closed.is_set() and time.monotonic() - self._answered_at <= seconds)

    async def run(self) -> None:
        """Claim until `close`; returns once everything that was claimed has ended or was put back."""
        try:
            while not self._closed.is_set():
                if not await self._claim():
                    await self._pause()
            while self._held:
                await asyncio.wait(self._held)
        finally:
            self._is_answered = False

    @asynccontextmanager
    async def running(self, name: str) -> AsyncGenerator[None]:
        """Claim and work inside the block; at its end what has not ended is put back."""
        async with running_beside(self.run(), name):
            try:
                yield
            finally:
                self.stop()
                while self._held:
                    await asyncio.wait(self._held)

    def close(self) -> None:
        """Claim no more; what is under way goes on."""
        self._closed.set()
        self._signal.wake()

    def stop(self) -> None:
        """Claim no more, and put back what is under way; `run` returns afterwards."""
        self.close()
        for task in self._held:
            task.cancel()

    async def _claim(self) -> bool:
        """Return whether anything was claimed; an unreachable database is nothing claimed."""
        claimed = await self._answer()
        for one in claimed:
            if self._closed.is_set():
                await self._put_back(one)
                continue
            task = asyncio.create_task(self._hold(one), name=f"work {one.lease.id}")
            self._held[task] = one
            task.add_done_callback(self._ended)
        return bool(claimed)

    async def _answer(self) -> Sequence[C]:
        self._is_answered = False
        with ErrorBoundary(log.error, "claiming broke, it is tried again"):
            try:
                claimed = await self._work.claim(self._heartbeats.late())
            except ThroughlineError as error:
                log.warning("claiming failed, it is tried again", error=error.code)
                return ()
            self._is_answered, self._answered_at = True, time.monotonic()
            return claimed
        return ()

    async def _pause(self) -> None:
        """Wait for work; after an unanswered claim for the whole time, whatever is signalled."""
        if self._is_answered:
            await self._signal.wait(self._pauses.poll_seconds)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), self._pauses.after_outage_seconds)

    async def _hold(self, claimed: C) -> None:
        """Do the work until it ends, its lease is lost or the loop is stopped."""
        work = asyncio.create_task(self._work.perform(claimed))
        watch = asyncio.create_task(self._heartbeats.of(claimed.lease).watch())
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                log.warning("lease lost", id=str(claimed.lease.id))
                await asyncio.wait({work}, timeout=await self._work.seconds_after_loss(claimed))
            if work.done():
                work.result()
        except asyncio.CancelledError:
            await _cancel(work)
            await self._put_back(claimed)
            raise
        finally:
            await _cancel(work, watch)

    async def _put_back(self, claimed: C) -> None:
        try:
            await self._work.put_back(claimed)
        except ThroughlineError as error:
            log.warning("claimed work is left to its lease", id=str(claimed.lease.id), error=error.code)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._held[task]
        self._signal.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("claimed work ended without a record", error=type(error).__name__, where=places_of(error))


async def _cancel(*tasks: "asyncio.Task[object]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
