"""The loop that claims leased work, does it under a heartbeat, and hands back what it is stopped in."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import structlog

from throughline.domain.errors import ThroughlineError, places_of
from throughline.domain.lease import RowLease
from throughline.execution.error_boundary import ErrorBoundary
from throughline.execution.heartbeats import Heartbeat, Heartbeats
from throughline.execution.running_concurrently import running_concurrently

AFTER_OUTAGE_SECONDS = 2.0
"""From a claim that reached no database to the next: longer than between two heartbeats then.

So holders renew their leases (execution/heartbeats.py) before anybody claims what seems to be left."""

CLAIM_ENDS_SECONDS = 5.0
"""A claim under way at the end has so long to be answered, so that what it claimed is put back."""

log = structlog.get_logger(__name__)


class Claimed(Protocol):
    """A claimed row."""

    @property
    def lease(self) -> RowLease:
        """The right to write for it."""
        ...


C = TypeVar("C", bound=Claimed)


class LeasedWork(Protocol[C]):
    """How a loop handles one kind of work: it claims rows, performs them and puts them back.

    Runs, side jobs and Slack deliveries each have one.
    """

    async def claim(self, late: Sequence[RowLease]) -> Sequence[C]:
        """Claim what there is room for, but no row of the `late` leases, held here. Raises ThroughlineError."""
        ...

    async def perform(self, claimed: C, heartbeat: Heartbeat[RowLease]) -> None:
        """Do the work while `heartbeat` renews its lease, and store its end. It is cancelled if the loop is stopped."""
        ...

    async def put_back(self, claimed: C) -> None:
        """Put the row back as untried. Raises ThroughlineError."""
        ...

    def ended(self, claimed: C) -> None:
        """Note that the work is no longer under way, and wake the loop where there is room for other work now."""
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
class LoopConfig:
    """How long a loop waits for work without a signal and after a claim that was not answered, and by which clock."""

    poll_seconds: float
    after_outage_seconds: float = AFTER_OUTAGE_SECONDS
    monotonic: Callable[[], float] = time.monotonic


class LeaseLoop(Generic[C]):
    """Claims and works while `run` runs; whatever the database does, it is tried again."""

    def __init__(
        self, work: LeasedWork[C], heartbeats: Heartbeats[RowLease], signal: WorkSignal, config: LoopConfig
    ) -> None:
        """Nothing is claimed before `run`."""
        self._work = work
        self._heartbeats = heartbeats
        self._signal = signal
        self._config = config
        self._held: dict[asyncio.Task[None], tuple[C, Heartbeat[RowLease]]] = {}
        self._closed = asyncio.Event()
        self._stops_at: float | None = None
        self._is_answered = False
        self._answered_at = float("-inf")

    @property
    def held(self) -> tuple[C, ...]:
        """What is under way."""
        return tuple(claimed for claimed, _ in self._held.values())

    @property
    def is_open(self) -> bool:
        """Whether the loop was not closed."""
        return not self._closed.is_set()

    @property
    def is_claiming(self) -> bool:
        """Whether the loop is open and the last claim was answered."""
        return self.is_open and self._is_answered

    def has_claimed_within(self, seconds: float) -> bool:
        """Whether the loop is open, and its last claim was answered or an earlier one less than `seconds` ago."""
        return self.is_claiming or (self.is_open and self._config.monotonic() - self._answered_at < seconds)

    async def run(self) -> None:
        """Claim until `close`; returns once everything that was claimed has ended or was put back."""
        try:
            while self.is_open:
                if not await self._claim():
                    await self._pause()
            while self._held:
                await asyncio.wait(self._held)
        finally:
            self._is_answered = False

    @asynccontextmanager
    async def running(self, name: str) -> AsyncGenerator[None]:
        """Claim and work inside the block; at its end what has not ended is put back."""
        async with running_concurrently(self.run(), name) as running:
            try:
                yield
            finally:
                await self.drain(grace_seconds=0)
                await asyncio.wait({running}, timeout=CLAIM_ENDS_SECONDS)

    async def drain(self, grace_seconds: float) -> None:
        """Claim no more, let what is under way end within the grace of the first drain, and put back the rest."""
        self.close()
        now = asyncio.get_running_loop().time
        self._stops_at = now() + grace_seconds if self._stops_at is None else self._stops_at
        while self._held:  # an interface may begin a run that it had claimed before
            left = self._stops_at - now()
            if left <= 0:
                self.stop()
            await asyncio.wait(self._held, timeout=left if left > 0 else None)

    def close(self) -> None:
        """Claim no more; what is under way goes on."""
        self._closed.set()
        self._signal.wake()

    def stop(self) -> None:
        """Claim no more, and put back what is under way; `run` returns afterwards."""
        self.close()
        for task in self._held:  # not before its first step: a task that never ran would put nothing back
            asyncio.get_running_loop().call_soon(task.cancel)

    def begin(self, claimed: C) -> None:
        """Start a task for what was claimed, here or as a run was submitted, and return at once."""
        heartbeat = self._heartbeats.of(claimed.lease)
        task = asyncio.create_task(self._perform(claimed, heartbeat), name=f"work {claimed.lease.id}")
        self._held[task] = claimed, heartbeat
        task.add_done_callback(self._ended)

    def renew_now(self, row_id: UUID) -> None:
        """Renew the row's lease at once if it is held here, to learn of a cancel."""
        for claimed, heartbeat in self._held.values():
            if claimed.lease.id == row_id:
                heartbeat.renew_now()

    async def _claim(self) -> bool:
        """Return whether anything was claimed; an unreachable database is nothing claimed."""
        claimed = await self._answer()
        for one in claimed:
            if self.is_open:
                self.begin(one)
            else:
                await self._put_back(one)
        return bool(claimed)

    async def _answer(self) -> Sequence[C]:
        self._is_answered = False
        with ErrorBoundary(log.error, "claiming broke, it is tried again"):
            try:
                claimed = await self._work.claim(self._heartbeats.late())
            except ThroughlineError as error:
                log.warning("claiming failed, it is tried again", error=error.code)
                return ()
            self._is_answered, self._answered_at = True, self._config.monotonic()
            return claimed
        return ()

    async def _pause(self) -> None:
        """Wait for work; after an unanswered claim for the whole time, whatever is signalled."""
        if self._is_answered:
            await self._signal.wait(self._config.poll_seconds)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), self._config.after_outage_seconds)

    async def _perform(self, claimed: C, heartbeat: Heartbeat[RowLease]) -> None:
        try:
            await self._work.perform(claimed, heartbeat)
        except asyncio.CancelledError:
            await self._put_back(claimed)
            raise

    async def _put_back(self, claimed: C) -> None:
        try:
            await self._work.put_back(claimed)
        except ThroughlineError as error:
            log.warning("claimed work is left to its lease", id=str(claimed.lease.id), error=error.code)

    def _ended(self, task: asyncio.Task[None]) -> None:
        claimed, _ = self._held.pop(task)
        self._work.ended(claimed)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("claimed work ended without a record", error=type(error).__name__, where=places_of(error))


async def _no_seconds() -> float:
    return 0.0


async def work_until_lost(
    work: Coroutine[Any, Any, object],
    heartbeat: Heartbeat[RowLease],
    seconds_after_loss: Callable[[], Awaitable[float]] = _no_seconds,
) -> None:
    """Do the work until it ends or its lease is lost; `seconds_after_loss` says how long it may go on then."""
    working, watch = asyncio.create_task(work), asyncio.create_task(heartbeat.watch())
    try:
        await asyncio.wait({working, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            log.warning("lease lost", id=str(heartbeat.lease.id))
            await asyncio.wait({working}, timeout=await seconds_after_loss())
        if working.done():
            working.result()
    finally:
        for task in (working, watch):
            task.cancel()
        await asyncio.gather(working, watch, return_exceptions=True)
