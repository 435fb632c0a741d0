"""The loop that claims leased rows, performs their work under heartbeats, and puts back unfinished work."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

import structlog

from throughline.domain.errors import TemporaryError, ThroughlineError, traceback_lines
from throughline.domain.run import LeaseRenewal, RowLease
from throughline.execution.error_boundary import UNEXPECTED, ErrorBoundary, running_concurrently
from throughline.execution.poll_pace import PollPace

# One `Heartbeats` renews all its watched leases in one statement. It serves turns, side jobs, Slack deliveries and
# summaries on demand. Each table's own statement decides which leases are still valid.

HEARTBEATS_PER_LEASE = 3
AWAY_SECONDS = 0.5
"""Seconds between heartbeats during a database outage.

They are few, so that leases are renewed before other processes claim again (AFTER_OUTAGE_SECONDS).
"""

PAUSES_SECONDS = (0.0, 0.05, 0.2, 0.5)
"""Pauses before the tries of one heartbeat, since a row locked by another write is usually free soon after."""

L = TypeVar("L", bound=Hashable)
Renew: TypeAlias = Callable[[Collection[L], float], Awaitable[Mapping[L, LeaseRenewal]]]
"""A function that extends leases by a number of seconds and returns the result for each lease still valid."""


class StopReason(Enum):
    """Why work must stop before its end."""

    LEASE_LOST = "lease_lost"
    CANCEL_REQUESTED = "cancel_requested"


class Heartbeats(Generic[L]):
    """The renewal of all watched leases of one kind, three times per lease duration, in one statement for all."""

    def __init__(self, renew: Renew[L], lease_seconds: float) -> None:
        """Prepare; renewals start when the first lease is watched."""
        self._renew_leases = renew
        self._lease_seconds = lease_seconds
        self._watched: set[Heartbeat[L]] = set()
        self._woken = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    def of(self, lease: L) -> "Heartbeat[L]":
        """Return a heartbeat for the lease; it is renewed while it is watched."""
        return Heartbeat(self, lease)

    def join(self, heartbeat: "Heartbeat[L]") -> None:
        """Start renewing this heartbeat's lease."""
        self._watched.add(heartbeat)
        if heartbeat.is_due_now:
            self.wake()
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._renew_while_watched(), name="heartbeat")

    def leave(self, heartbeat: "Heartbeat[L]") -> None:
        """Stop renewing this heartbeat's lease."""
        self._watched.discard(heartbeat)
        if not self._watched:
            self.wake()

    def late(self) -> tuple[L, ...]:
        """Return the watched leases that were last renewed more than half a lease duration ago.

        They may expire, and this process must not claim their rows again.
        """
        oldest = time.monotonic() - self._lease_seconds / 2
        return tuple(heartbeat.lease for heartbeat in self._watched if heartbeat.renewed_at < oldest)

    def wake(self) -> None:
        """Renew the leases that are due now, or end the task if no lease is watched."""
        self._woken.set()

    async def _renew_while_watched(self) -> None:
        loop = asyncio.get_running_loop()
        next_heartbeat = loop.time() + self._lease_seconds / HEARTBEATS_PER_LEASE
        while self._watched:
            try:
                async with asyncio.timeout_at(next_heartbeat):
                    await self._woken.wait()
                    await asyncio.sleep(0)  # lets the timeout fire even if leases keep becoming due
            except TimeoutError:
                is_reached = await self._renew_watched(set(self._watched))
                pause = self._lease_seconds / HEARTBEATS_PER_LEASE
                next_heartbeat = loop.time() + (pause if is_reached else min(AWAY_SECONDS, pause))
            else:
                self._woken.clear()
                await self._renew_watched({heartbeat for heartbeat in self._watched if heartbeat.is_due_now})

    async def _renew_watched(self, heartbeats: "Collection[Heartbeat[L]]") -> bool:
        """Renew these leases, with retries for locked rows. Return whether the database was reached.

        A lease that cannot be renewed is kept: a process that claims its row changes the fence, which a later heartbeat
        sees.
        """
        for pause in PAUSES_SECONDS:
            if not heartbeats:
                break
            await asyncio.sleep(pause)
            for heartbeat in heartbeats:
                heartbeat.is_due_now = False  # before the statement: `renew_now` meanwhile asks for a further one
            renewals = await self._renew([heartbeat.lease for heartbeat in heartbeats])
            if renewals is None:
                return False
            for heartbeat in heartbeats:
                heartbeat.apply_renewal(renewals.get(heartbeat.lease))
            heartbeats = [heartbeat for heartbeat in heartbeats if not heartbeat.is_renewed]
        return True

    async def _renew(self, leases: Collection[L]) -> Mapping[L, LeaseRenewal] | None:
        """Return the renewals of the leases that are still valid; None if the database was not reached."""
        with ErrorBoundary(log.error, task="heartbeat", leases=len(leases)):
            try:
                return await self._renew_leases(leases, self._lease_seconds)
            except TemporaryError as error:
                log.warning("lease renewal failed", leases=len(leases), error=error.code)
        return None


class Heartbeat(Generic[L]):
    """The heartbeat of one lease: its last renewal, and the signal that its work must stop."""

    def __init__(self, heartbeats: Heartbeats[L], lease: L) -> None:
        """Prepare; renewals start with `watch`."""
        self.lease = lease
        self.is_due_now = False
        self.is_renewed = True
        self.renewed_at = time.monotonic()
        self._heartbeats = heartbeats
        self._stop: asyncio.Future[StopReason] | None = None

    def renew_now(self) -> None:
        """Renew now instead of at the next heartbeat, for example because a cancel was announced."""
        self.is_due_now = True
        self._heartbeats.wake()

    async def watch(self) -> StopReason:
        """Renew the lease until the work must stop, and return why. An unreachable database stops nothing."""
        self._stop = asyncio.get_running_loop().create_future()
        self._heartbeats.join(self)
        try:
            return await self._stop
        finally:
            self._heartbeats.leave(self)

    async def hold(self) -> None:
        """Renew the lease until it is lost or this task is cancelled; requested cancels are ignored."""
        while await self.watch() is not StopReason.LEASE_LOST:
            pass

    def apply_renewal(self, renewal: LeaseRenewal | None) -> None:
        """Apply the result of a renewal; None means that the lease is lost.

        A lost lease or a requested cancel ends `watch`.
        """
        self.is_renewed = renewal is None or renewal.is_renewed
        if self.is_renewed:
            self.renewed_at = time.monotonic()
        if renewal is None:
            self._resolve(StopReason.LEASE_LOST)
        elif renewal.is_cancel_requested:
            self._resolve(StopReason.CANCEL_REQUESTED)

    def _resolve(self, reason: StopReason) -> None:
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(reason)


AFTER_OUTAGE_SECONDS = 2.0
"""Pause after a claim that did not reach the database, longer than the pause between heartbeats then.

So holders renew their leases before other processes claim seemingly abandoned rows.
"""

CLAIM_ENDS_SECONDS = 5.0
"""Time that `running` leaves to a claim under way at its end, so that the rows it claims are put back."""

log = structlog.get_logger(__name__)


class Claimed(Protocol):
    """A claimed row: a run, a side job or a Slack delivery."""

    @property
    def lease(self) -> RowLease:
        """The right to write for the row."""
        ...


C = TypeVar("C", bound=Claimed)


@dataclass(frozen=True, slots=True)
class Claims(Generic[C]):
    """The rows of one claim. If it `may_have_left` some, the loop claims again at once, else after a signal."""

    rows: Sequence[C] = ()
    may_have_left: bool = False


class LeasedWork(Protocol[C]):
    """The operations of one kind of leased work: claiming, performing and putting back.

    Runs, side jobs and Slack deliveries each implement it.
    """

    async def claim(self, late: Sequence[RowLease]) -> Claims[C]:
        """Claim rows for which there is capacity, except rows of the `late` leases. Raises ThroughlineError.

        The `late` leases are held in this process but overdue for renewal.
        """
        ...

    async def perform(self, claimed: C, heartbeat: Heartbeat[RowLease]) -> None:
        """Do the work while `heartbeat` renews its lease, and store its result.

        The task is cancelled if the loop is stopped; then `put_back` is called.
        """
        ...

    async def put_back(self, claimed: C) -> None:
        """Put the row back into the queue, as if it had not been tried. Raises ThroughlineError."""
        ...

    def ended(self, claimed: C) -> None:
        """Release what the ended work used, such as a slot, and wake the loop if other work can start now."""
        ...


class WorkSignal(Protocol):
    """A signal that work may be waiting."""

    @property
    def polls_alone(self) -> bool:
        """Whether other processes do not wake it, so that their work is found by polling alone."""
        ...

    async def wait(self, timeout_seconds: float) -> bool:
        """Wait until woken or until the timeout; return whether it was woken."""
        ...

    def wake(self) -> None:
        """End the current wait."""
        ...


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """The pauses of a loop, in seconds, and its clock.

    `poll_seconds` is the longest pause between claims without a signal; a signal that polls alone makes it shorter.
    `after_outage_seconds` is the pause after a claim that the database did not answer.
    """

    poll_seconds: float
    after_outage_seconds: float = AFTER_OUTAGE_SECONDS
    monotonic: Callable[[], float] = time.monotonic


class LeaseLoop(Generic[C]):
    """A loop that claims rows and performs their work while `run` runs; claims that fail are retried."""

    def __init__(
        self, work: LeasedWork[C], heartbeats: Heartbeats[RowLease], signal: WorkSignal, config: LoopConfig
    ) -> None:
        """Prepare the loop; `run` starts claiming."""
        self._work = work
        self._heartbeats = heartbeats
        self._signal = signal
        self._config = config
        self._pace = PollPace(config.poll_seconds, config.monotonic)
        self._held: dict[asyncio.Task[None], tuple[C, Heartbeat[RowLease]]] = {}
        self._closed = asyncio.Event()
        self._stops_at: float | None = None
        self._is_answered = False
        self._answered_at = float("-inf")

    @property
    def held(self) -> tuple[C, ...]:
        """The claimed work that is under way."""
        return tuple(claimed for claimed, _ in self._held.values())

    @property
    def is_open(self) -> bool:
        """Whether the loop has not been closed."""
        return not self._closed.is_set()

    @property
    def is_claiming(self) -> bool:
        """Whether the loop is open and the database answered the last claim."""
        return self.is_open and self._is_answered

    def has_claimed_within(self, seconds: float) -> bool:
        """Whether the loop is open and the database answered the last claim, or one less than `seconds` ago."""
        return self.is_claiming or (self.is_open and self._config.monotonic() - self._answered_at < seconds)

    async def run(self) -> None:
        """Claim and perform work until `close`, then wait until all claimed work has ended or was put back."""
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
        """Run the loop inside the block; at the block's end, put unfinished work back."""
        async with running_concurrently(self.run, name) as running:
            try:
                yield
            finally:
                await self.drain(grace_seconds=0)
                await asyncio.wait({running}, timeout=CLAIM_ENDS_SECONDS)

    async def drain(self, grace_seconds: float) -> None:
        """Stop claiming, wait for work under way within the grace period, then put back the rest.

        A further call does not extend the grace period of the first.
        """
        self.close()
        now = asyncio.get_running_loop().time
        self._stops_at = now() + grace_seconds if self._stops_at is None else self._stops_at
        while self._held:  # an interface may still start a run that it claimed earlier
            left = self._stops_at - now()
            if left <= 0:
                self.stop()
            await asyncio.wait(self._held, timeout=left if left > 0 else None)

    def close(self) -> None:
        """Stop claiming; work under way continues."""
        self._closed.set()
        self._signal.wake()

    def stop(self) -> None:
        """Stop claiming and put back work under way; then `run` returns."""
        self.close()
        for task in self._held:  # deferred: a task cancelled before its first step would not put its row back
            asyncio.get_running_loop().call_soon(task.cancel)

    def begin(self, claimed: C) -> None:
        """Start a task for claimed work and return at once; used by the loop and at submission."""
        heartbeat = self._heartbeats.of(claimed.lease)
        task = asyncio.create_task(self._perform(claimed, heartbeat), name=f"work {claimed.lease.id}")
        self._held[task] = claimed, heartbeat
        task.add_done_callback(self._ended)

    def renew_now(self, row_id: UUID) -> None:
        """Renew the row's lease at once if it is held here, to learn of a requested cancel."""
        for claimed, heartbeat in self._held.values():
            if claimed.lease.id == row_id:
                heartbeat.renew_now()

    async def _claim(self) -> bool:
        """Claim work and start it; return whether to claim again at once. False if the database is unreachable."""
        claimed = await self._answer()
        for one in claimed.rows:
            if self.is_open:
                self.begin(one)
            else:
                await self._put_back(one)
        return claimed.may_have_left

    async def _answer(self) -> Claims[C]:
        self._is_answered = False
        with ErrorBoundary(log.error, task="claim", work=type(self._work).__name__):
            try:
                claimed = await self._work.claim(self._heartbeats.late())
            except ThroughlineError as error:
                log.warning("claim failed", work=type(self._work).__name__, error=error.code)
                return Claims()
            self._is_answered, self._answered_at = True, self._config.monotonic()
            if claimed.rows:
                self._pace.restart()
            return claimed
        return Claims()

    async def _pause(self) -> None:
        """Wait for a signal or `poll_seconds`.

        After a claim that the database did not answer, wait the full pause for outages, regardless of signals.
        """
        if self._is_answered:
            await self._signal.wait(self._pace.seconds() if self._signal.polls_alone else self._config.poll_seconds)
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
            log.warning("lease not released, left to expire", id=str(claimed.lease.id), error=error.code)

    def _ended(self, task: asyncio.Task[None]) -> None:
        claimed, _ = self._held.pop(task)
        self._work.ended(claimed)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                UNEXPECTED,
                task="leased work",
                work=type(self._work).__name__,
                error=type(error).__name__,
                where=traceback_lines(error),
            )


async def _no_seconds() -> float:
    return 0.0


async def work_until_lost(
    work: Coroutine[Any, Any, object],
    heartbeat: Heartbeat[RowLease],
    seconds_after_loss: Callable[[], Awaitable[float]] = _no_seconds,
) -> None:
    """Do the work until it ends or its lease is lost, and raise its error.

    After a loss it may run for `seconds_after_loss` more, and is then cancelled.
    """
    working, watch = asyncio.create_task(work), asyncio.create_task(heartbeat.watch())
    try:
        await asyncio.wait({working, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            log.warning("lease lost, work stopped", id=str(heartbeat.lease.id))
            await asyncio.wait({working}, timeout=await seconds_after_loss())
        if working.done():
            working.result()
    finally:
        for task in (working, watch):
            task.cancel()
        await asyncio.gather(working, watch, return_exceptions=True)
