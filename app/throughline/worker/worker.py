"""The worker of one process: claims runs while it has slots, turns them, and hands back what it cannot end."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import structlog

from throughline.domain.errors import SummaryLimitReached, TurnLimitReached, places_of
from throughline.domain.ids import RunId, UserId
from throughline.domain.lease import RowLease
from throughline.domain.run import ClaimedRun, Claimer
from throughline.execution.heartbeats import Heartbeat, Heartbeats
from throughline.execution.lease_loop import AFTER_OUTAGE_SECONDS, LeaseLoop, LoopConfig, WorkSignal
from throughline.execution.owner_limits import OwnerLimits, Taken
from throughline.turn.graph import build_graph
from throughline.turn.state import TurnDependencies
from throughline.turn.take_turn import TurnStart, take_turn
from throughline.worker.jobs import SideJobs

POLL_SECONDS = 1.0
LONGEST_SILENCE_SECONDS = 60.0
"""Longer than a statement may take with its retries: a claim loop without an answer for so long is stuck."""

CANCELS_KEPT = 256
"""Cancels remembered for runs that are just being claimed."""

PLACES_PER_OTHER = 10
"""Of so many open turns one may be taken by work that is no turn."""

MOST_OTHERS_OF_OWNER = 4
"""What one user may have of such work in this process, and never more than half of its places."""

ALONE_SECONDS = 10.0
"""So long after a run has begun its last try no other one does in this process, unless it has ended. What kills a
process does so sooner, as a rule; and where one was killed with hundreds of turns, these do not wait for hours."""

PLACE_SECONDS = 5.0
LATER = "Nothing was done; try again in a moment."

JOBS_END_SECONDS = 5.0
"""What stopped jobs get to be handed back; they are taken again anyway once they have been silent for long enough."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """`name` identifies the process in the runs it holds; `grace_seconds` is what a shutdown waits for turns."""

    name: str
    concurrency: int = 500
    lease_seconds: float = 10.0
    grace_seconds: float = 20.0
    after_outage_seconds: float = AFTER_OUTAGE_SECONDS


class Worker:
    """Runs up to `concurrency` turns at once; also the Slots through which a door may claim at submission."""

    def __init__(
        self, dependencies: TurnDependencies, signal: WorkSignal, jobs: SideJobs, config: WorkerConfig
    ) -> None:
        """Build the graph once; nothing is claimed, and no side job taken, before `working`."""
        self._dependencies = dependencies
        self._signal = signal
        self._config = config
        self._graph = build_graph()
        heartbeats = Heartbeats(dependencies.runs.renew, config.lease_seconds)
        loop = LoopConfig(POLL_SECONDS, config.after_outage_seconds, dependencies.clock.monotonic)
        self._loop: LeaseLoop[ClaimedRun] = LeaseLoop(self, heartbeats, signal, loop)
        self._free = config.concurrency
        self._is_line_empty = False
        self._others = _places_for_others(config.concurrency)
        self._room = asyncio.Event()
        self._room.set()
        self._last_tries: dict[RunId, float] = {}
        self._cancels: deque[RunId] = deque(maxlen=CANCELS_KEPT)
        self._jobs = jobs
        self._only_for: UserId | None = None

    @property
    def is_claiming(self) -> bool:
        """Whether the claim loop is open and a claim was answered lately, for readiness. A full one need not look."""
        return self._loop.has_claimed_within(LONGEST_SILENCE_SECONDS)

    @property
    def is_taking_jobs(self) -> bool:
        """Whether side jobs are being taken, for readiness."""
        return self._jobs.is_taking

    @property
    def jobs_in_hand(self) -> int:
        """How many side jobs are under way."""
        return self._jobs.in_hand

    @property
    def concurrency(self) -> int:
        """How many turns may be open at once."""
        return self._config.concurrency

    @property
    def open_turns(self) -> int:
        """How many turns are open."""
        return len(self._loop.held)

    @asynccontextmanager
    async def working(self, *, only_for: UserId | None = None) -> AsyncGenerator[asyncio.Event]:
        """Keep the claim loop and the side jobs running inside the block, and drain at its end.

        With `only_for` the turns of this owner alone are claimed, and no side job is taken. Yields an event that is set
        where the claim loop broke: nothing will be claimed any more.
        """
        self._only_for = only_for
        loop, broken = asyncio.create_task(self._loop.run()), asyncio.Event()
        loop.add_done_callback(lambda ended: _look_at_end(ended, broken))
        tasks = {loop} if only_for is not None else {loop, asyncio.create_task(self._jobs.run())}
        try:
            yield broken
        finally:
            await self.drain()
            await asyncio.wait(tasks, timeout=JOBS_END_SECONDS)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def drain(self) -> None:
        """Stop claiming, let running turns end within the grace, then give the rest back.

        Side jobs hold nothing up: they go on while turns end, and are then handed back.
        """
        self._jobs.close()
        await self._loop.drain(self._config.grace_seconds)
        self._jobs.stop()

    def on_cancel(self, run_id: RunId) -> None:
        """A cancel was announced: look at once whether the run is one of ours."""
        self._cancels.append(run_id)
        self._loop.renew_now(run_id)

    def reserve(self) -> Claimer | None:
        """Reserve a slot for a door; None where none is free, the worker is not open, or earlier runs may wait.

        Once all slots were taken there may be a line: until the claim loop has found it empty, new runs join it.
        """
        return self._take_slot() if self._is_line_empty and self._loop.is_open else None

    def start(self, claimed: ClaimedRun) -> None:
        """Take the claimed run through its turn in the reserved slot."""
        self._loop.begin(claimed)

    async def claim(self, late: Sequence[RowLease]) -> Sequence[ClaimedRun]:
        """Claim the next run if a slot is free."""
        claimer, claimed = self._take_slot(), None
        if claimer is None:
            return ()
        try:
            claimed = await self._dependencies.runs.claim_next(self._now(claimer, late))
            self._is_line_empty = self._is_line_empty or claimed is None
        finally:
            if claimed is None:
                self._free_slot()
        if claimed is None:
            return ()
        if claimed.run.attempt >= max(self._dependencies.config.max_attempts, 2):
            self._last_tries[claimed.run.id] = self._dependencies.clock.monotonic()
        return (claimed,)

    async def perform(self, claimed: ClaimedRun, heartbeat: Heartbeat[RowLease]) -> None:
        """Take the run through its turn."""
        if claimed.run.cancel_requested or claimed.run.id in self._cancels:
            heartbeat.renew_now()  # its holder died before it stopped, or the cancel came while it was claimed
        await take_turn(
            TurnStart(dependencies=self._dependencies, graph=self._graph, claimed=claimed, heartbeat=heartbeat)
        )

    async def put_back(self, claimed: ClaimedRun) -> None:
        """Give the run back to the line as untried."""
        await self._dependencies.runs.give_back(claimed.lease)

    def ended(self, claimed: ClaimedRun) -> None:
        """Release the run's slot. Who ended the run has woken the claim loop if a run of the same user may begin."""
        if self._last_tries.pop(claimed.run.id, None) is not None:
            self._signal.wake()
        self.release()

    def release(self) -> None:
        """Give a slot back. Once all were taken, there may be runs that nobody here has looked for meanwhile."""
        if self._free == 0:
            self._signal.wake()
        self._free_slot()

    @asynccontextmanager
    async def occupied(self, owner_id: UserId) -> AsyncGenerator[None]:
        """Take an open turn's place inside the block, for work that is none: a summary on demand.

        Such work gets a share of the places only, so that turns always find some, and each owner a share of that.
        Raises TurnLimitReached, SummaryLimitReached.
        """
        self._take_place(owner_id)
        try:
            await self._until_free()
            self._occupy()
            try:
                yield
            finally:
                self.release()
        finally:
            self._others.give_back(owner_id)

    def _take_place(self, owner_id: UserId) -> None:
        places = self._others
        match places.take(owner_id):
            case Taken.BY_OWNER:
                most = places.most_of_owner
                raise SummaryLimitReached(
                    f"You have as many summaries on demand under way as one user may have ({most}). {LATER}"
                )
            case Taken.BY_ALL:
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
                f"All {self._config.concurrency} open turns of this process are taken. {LATER}"
            ) from None

    def _now(self, claimer: Claimer, late: Sequence[RowLease]) -> Claimer:
        """Return the claimer with what is in hand now. A run begins its last try at a distance from other such ones.

        One that kills its process would else take others with it, try after try, to their last.
        """
        since = self._dependencies.clock.monotonic() - ALONE_SECONDS
        is_one_begun = any(began > since for began in self._last_tries.values())
        passes_over = self._dependencies.config.max_attempts - 1 if is_one_begun else None
        return replace(claimer, held=tuple(lease.id for lease in late), passes_over=passes_over)

    def _take_slot(self) -> Claimer | None:
        if self._free == 0:
            return None
        self._occupy()
        return Claimer(self._config.name, self._config.lease_seconds, only_for=self._only_for)

    def _occupy(self) -> None:
        self._free -= 1
        if self._free == 0:
            self._room.clear()
            self._is_line_empty = False

    def _free_slot(self) -> None:
        self._free += 1
        self._room.set()


def _look_at_end(loop: asyncio.Task[None], broken: asyncio.Event) -> None:
    if not loop.cancelled() and (error := loop.exception()) is not None:
        log.error("claim loop broke", error=type(error).__name__, where=places_of(error))
        broken.set()


def _places_for_others(concurrency: int) -> OwnerLimits:
    most = max(1, concurrency // PLACES_PER_OTHER)
    return OwnerLimits(most, max(1, min(MOST_OTHERS_OF_OWNER, most // 2)))
