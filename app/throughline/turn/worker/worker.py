"""The worker of one process: claims runs while it has free slots, executes their turns, and puts back the rest."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from throughline.domain.basic_types import RunId, UserId
from throughline.domain.errors import SummaryLimitReached, TurnLimitReached, traceback_lines
from throughline.domain.run import ClaimedRun, ClaimedRuns, Claimer, RowLease
from throughline.execution.compute_threads import LimitReached, OwnerLimits
from throughline.execution.error_boundary import ErrorBoundary
from throughline.execution.lease_loop import (
    AFTER_OUTAGE_SECONDS,
    Claims,
    Heartbeat,
    Heartbeats,
    LeaseLoop,
    LoopConfig,
    WorkSignal,
)
from throughline.turn.graph import build_graph
from throughline.turn.state import TurnDependencies
from throughline.turn.take_turn import TurnStart, take_turn
from throughline.turn.worker.jobs import SideJobs

POLL_SECONDS = 1.0
LONGEST_SILENCE_SECONDS = 60.0
"""Seconds without a claim that the database answered, after which the claim loop counts as stuck.

They are more than the retries of any statement take.
"""

MOST_PER_CLAIM = 16
"""Most runs of one claim. Other processes find the rest, and start them while this one starts its own."""

CONTENTION_PAUSE_SECONDS = 0.01
"""Average pause before the next claim if another process was claiming just then; it commits within milliseconds."""

CANCEL_POLL_SECONDS = 0.5
"""Pause between two searches for cancels that other processes requested, where the service polls alone."""

CANCELS_KEPT = 256
"""Most announced cancels that are remembered, for runs that are being claimed when their cancel is announced."""

SLOTS_PER_SUMMARY = 10
"""One in this many turn slots may be used by work other than turns: summaries on demand."""

MOST_OTHERS_OF_OWNER = 4
"""Most summaries on demand of one user in this process; if possible, at most half of the slots for summaries."""

LAST_ATTEMPT_SPACING_SECONDS = 10.0
"""Seconds after a run started its last attempt in which no other run's last attempt starts in this process.

A run that kills its process usually does so sooner. If a process died with hundreds of turns, their last attempts do
not wait for hours.
"""

PLACE_SECONDS = 5.0
LATER = "Nothing was done; try again in a moment."

JOBS_END_SECONDS = 5.0
"""Time for stopped jobs to be put back; otherwise other processes claim them once their leases expire."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Settings of a process's worker.

    `name` identifies the process in the runs it holds. `concurrency` is the most turns at once. A shutdown waits
    `grace_seconds` for running turns.
    """

    name: str
    concurrency: int = 500
    lease_seconds: float = 10.0
    grace_seconds: float = 20.0
    after_outage_seconds: float = AFTER_OUTAGE_SECONDS


class RunsSignal(WorkSignal, Protocol):
    """The signal that runs are queued, and what this process leaves to others."""

    @property
    def times(self) -> int:
        """The number of calls of `wake`."""
        ...

    def claim_here(self, can_claim: Callable[[], bool]) -> None:
        """Keep announced runs to this process while `can_claim`."""
        ...

    def has_claimed_all(self, times: int) -> None:
        """Note that a claim, which began after so many calls of `wake`, found no more runs."""
        ...

    def pass_on(self) -> None:
        """Notify other processes of the runs kept to this one."""
        ...


class Worker:
    """The worker of a process, which executes up to `concurrency` turns at once.

    Interfaces reserve slots here, so that a submitted run is claimed at once.
    """

    def __init__(
        self, dependencies: TurnDependencies, signal: RunsSignal, jobs: SideJobs, config: WorkerConfig
    ) -> None:
        """Build the graph once; `working` starts claiming runs and side jobs."""
        self._dependencies = dependencies
        self._signal = signal
        self._config = config
        self._graph = build_graph()
        heartbeats = Heartbeats(dependencies.runs.renew, config.lease_seconds)
        loop = LoopConfig(POLL_SECONDS, config.after_outage_seconds, dependencies.clock.monotonic)
        self._loop: LeaseLoop[ClaimedRun] = LeaseLoop(self, heartbeats, signal, loop)
        self._free = config.concurrency
        self._is_claim_under_way = False
        self._is_line_empty = False
        self._summary_slots = _slots_for_summaries(config.concurrency)
        self._room = asyncio.Event()
        self._room.set()
        self._last_tries: dict[RunId, float] = {}
        self._cancels: deque[RunId] = deque(maxlen=CANCELS_KEPT)
        self._jobs = jobs
        self._only_for: UserId | None = None

    @property
    def is_claiming(self) -> bool:
        """Whether the claim loop is open and the database answered a claim lately, for readiness.

        A loop without free slots need not claim.
        """
        return self._loop.has_claimed_within(LONGEST_SILENCE_SECONDS)

    @property
    def is_taking_jobs(self) -> bool:
        """Whether side jobs are being claimed, for readiness."""
        return self._jobs.is_taking

    @property
    def jobs_in_hand(self) -> int:
        """The number of side jobs under way."""
        return self._jobs.in_hand

    @property
    def concurrency(self) -> int:
        """The most turns that may be open at once."""
        return self._config.concurrency

    @property
    def open_turns(self) -> int:
        """The number of open turns."""
        return len(self._loop.held)

    @asynccontextmanager
    async def working(self, *, only_for: UserId | None = None) -> AsyncGenerator[asyncio.Event]:
        """Run the claim loop and side jobs inside the block, and drain at its end.

        With `only_for` only this owner's turns are claimed, and no side jobs. Yields an event that is set if the claim
        loop crashed, so that nothing more will be claimed.
        """
        self._only_for = only_for
        if only_for is None:
            self._signal.claim_here(self._can_claim)
        loop, broken = asyncio.create_task(self._loop.run()), asyncio.Event()
        loop.add_done_callback(lambda ended: _log_end(ended, broken))
        tasks = {loop} if only_for is not None else {loop, asyncio.create_task(self._jobs.run())}
        polling = {asyncio.create_task(self._poll_cancels())} if self._signal.polls_alone else set()
        try:
            yield broken
        finally:
            await self.drain()
            await asyncio.wait(tasks, timeout=JOBS_END_SECONDS)
            for task in tasks | polling:
                task.cancel()
            await asyncio.gather(*tasks, *polling, return_exceptions=True)

    async def drain(self) -> None:
        """Stop claiming, let running turns end within the grace period, then put the rest back.

        Side jobs do not delay the shutdown: they continue while turns end, and are then put back.
        """
        self._jobs.close()
        self._loop.close()
        self._signal.pass_on()
        await self._loop.drain(self._config.grace_seconds)
        self._jobs.stop()

    def on_cancel(self, run_id: RunId) -> None:
        """Renew the run's lease at once if it is held here, which shows the requested cancel and stops the turn.

        A run that is being claimed is checked when its turn starts.
        """
        self._cancels.append(run_id)
        self._loop.renew_now(run_id)

    async def _poll_cancels(self) -> None:
        """Search for cancels of the runs that are held here, since no notification tells of them."""
        while True:
            await asyncio.sleep(CANCEL_POLL_SECONDS)
            with ErrorBoundary(log.warning, "cancels not searched for"):
                held = {claimed.run.id for claimed in self._loop.held}.difference(self._cancels)
                stopped = await self._dependencies.runs.find_stopped(held) if held else ()
                for run_id in stopped:
                    self.on_cancel(run_id)

    def reserve(self) -> Claimer | None:
        """Reserve a turn slot for a run to be submitted, and return the claimer for it.

        Return None if no slot is free, the worker is closed, or earlier runs may wait.

        After all slots were in use, runs may be queued. Until the claim loop finds the queue empty, new runs join it.
        """
        if self._free == 0 or not self._is_line_empty or not self._loop.is_open:
            return None
        self._occupy()
        return self._claimer()

    def start(self, claimed: ClaimedRun) -> None:
        """Execute the claimed run's turn in the reserved slot."""
        self._loop.begin(claimed)

    async def claim(self, late: Sequence[RowLease]) -> Claims[ClaimedRun]:
        """Claim runs for up to half of the free slots, in one statement.

        The other half is left to messages that arrive meanwhile (`reserve`).
        """
        most, found = min((self._free + 1) // 2, MOST_PER_CLAIM), ClaimedRuns(())
        if most == 0:
            self._signal.pass_on()
            return Claims()
        self._occupy(most)
        times, self._is_claim_under_way = self._signal.times, True
        try:
            found = await self._dependencies.runs.claim(self._now(most, late))
        finally:
            self._is_claim_under_way = False
            self._free_slots(most - len(found.runs))
        self._note_last_attempts(found.runs)
        if found.is_contended:
            self._claim_again_soon()
        has_taken_all = len(found.runs) < most
        if has_taken_all and not found.is_contended:
            self._is_line_empty = True
            self._signal.has_claimed_all(times)
        return Claims(found.runs, may_have_left=not has_taken_all)

    def _can_claim(self) -> bool:
        """Whether a queued run is claimed here soon, or passed on if the slots of a claim under way are used up."""
        has_slot = self._free > 0 or self._is_claim_under_way
        return has_slot and self._loop.has_claimed_within(POLL_SECONDS)

    def _claim_again_soon(self) -> None:
        pause = random.uniform(0.5, 1.5) * CONTENTION_PAUSE_SECONDS  # noqa: S311  # spreads claims, guards no secret
        asyncio.get_running_loop().call_later(pause, self._signal.wake)

    def _note_last_attempts(self, claimed: Sequence[ClaimedRun]) -> None:
        for one in claimed:
            if one.run.attempt >= max(self._dependencies.config.max_attempts, 2):
                self._last_tries[one.run.id] = self._dependencies.clock.monotonic()

    async def perform(self, claimed: ClaimedRun, heartbeat: Heartbeat[RowLease]) -> None:
        """Execute the run's turn. If its cancel was already requested, the turn is stopped at once."""
        if claimed.run.cancel_requested or claimed.run.id in self._cancels:
            heartbeat.renew_now()  # cancelled before or during this claim
        await take_turn(
            TurnStart(dependencies=self._dependencies, graph=self._graph, claimed=claimed, heartbeat=heartbeat)
        )

    async def put_back(self, claimed: ClaimedRun) -> None:
        """Put the run back into the queue; this attempt is not counted."""
        await self._dependencies.runs.give_back(claimed.lease)

    def ended(self, claimed: ClaimedRun) -> None:
        """Release the run's slot, and wake the claim loop if this was the run's last attempt.

        Other last attempts may start then. If the owner has a queued run, storing the end has already woken the loop.
        """
        if self._last_tries.pop(claimed.run.id, None) is not None:
            self._signal.wake()
        self.release()

    def release(self) -> None:
        """Release a slot. If all were in use, wake the claim loop, since runs may have been queued meanwhile."""
        if self._free == 0:
            self._signal.wake()
        self._free_slots()

    @asynccontextmanager
    async def occupied(self, owner_id: UserId) -> AsyncGenerator[None]:
        """Occupy a turn's slot inside the block, for a summary on demand. Waits up to PLACE_SECONDS for a free one.

        Such work gets only a share of the slots, so that turns always find some, and each owner a share of that. Raises
        TurnLimitReached, SummaryLimitReached.
        """
        self._wait_for_slot(owner_id)
        try:
            await self._until_free()
            self._occupy()
            try:
                yield
            finally:
                self.release()
        finally:
            self._summary_slots.give_back(owner_id)

    def _wait_for_slot(self, owner_id: UserId) -> None:
        places = self._summary_slots
        match places.take(owner_id):
            case LimitReached.BY_OWNER:
                most = places.most_of_owner
                raise SummaryLimitReached(
                    f"You have as many summaries on demand under way as one user may have ({most}). {LATER}"
                )
            case LimitReached.BY_ALL:
                raise TurnLimitReached(
                    f"This process has {places.most} summaries on demand under way, the most it takes. {LATER}"
                )
            case None:
                pass

    async def _until_free(self) -> None:
        try:
            async with asyncio.timeout(PLACE_SECONDS):
                while self._free == 0:
                    await self._room.wait()
        except TimeoutError:
            raise TurnLimitReached(
                f"All {self._config.concurrency} turn slots of this process are in use. {LATER}"
            ) from None

    def _now(self, most: int, late: Sequence[RowLease]) -> Claimer:
        """Return the claimer for up to `most` runs, which keeps last attempts of runs apart in time.

        Otherwise a run that kills its process could take the last attempts of other runs with it.
        """
        since = self._dependencies.clock.monotonic() - LAST_ATTEMPT_SPACING_SECONDS
        is_one_begun = any(began > since for began in self._last_tries.values())
        spaced_attempt = self._dependencies.config.max_attempts - 1
        return replace(
            self._claimer(),
            most=most,
            held=tuple(lease.id for lease in late),
            skipped_attempt=spaced_attempt if is_one_begun else None,
            spaced_attempt=spaced_attempt,
        )

    def _claimer(self) -> Claimer:
        return Claimer(self._config.name, self._config.lease_seconds, only_for=self._only_for)

    def _occupy(self, slots: int = 1) -> None:
        self._free -= slots
        if self._free == 0:
            self._room.clear()
            self._is_line_empty = False

    def _free_slots(self, slots: int = 1) -> None:
        self._free += slots
        if self._free > 0:
            self._room.set()


def _log_end(loop: asyncio.Task[None], broken: asyncio.Event) -> None:
    if not loop.cancelled() and (error := loop.exception()) is not None:
        log.error("claim loop crashed", error=type(error).__name__, where=traceback_lines(error))
        broken.set()


def _slots_for_summaries(concurrency: int) -> OwnerLimits:
    most = max(1, concurrency // SLOTS_PER_SUMMARY)
    return OwnerLimits(most, max(1, min(MOST_OTHERS_OF_OWNER, most // 2)))
