"""The worker of one process: claims runs while it has slots, turns them, and hands back what it cannot end."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog

from app.domain.errors import ThroughlineError
from app.domain.ids import RunId
from app.domain.run import ClaimedRun
from app.turn.graph import build_graph
from app.turn.lease import Heartbeat
from app.turn.ports import Claimer
from app.turn.state import TurnParts
from app.turn.take_turn import Play, take_turn

POLL_SECONDS = 1.0
log = structlog.get_logger(__name__)


class WorkSignal(Protocol):
    """Wakes the claim loop when a run is queued somewhere."""

    async def wait(self, timeout_seconds: float) -> bool:
        """Return on news, or after the timeout; whether there was news."""
        ...

    def wake(self) -> None:
        """End a wait now: there may be news in this very process."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """`name` identifies the process in the runs it holds; `grace_seconds` is what a shutdown waits for turns."""

    name: str
    concurrency: int = 16
    lease_seconds: float = 10.0
    grace_seconds: float = 20.0


class Worker:
    """Runs up to `concurrency` turns at once; also the Slots through which a door may claim at submission."""

    def __init__(self, parts: TurnParts, signal: WorkSignal, config: WorkerConfig) -> None:
        """Build the graph once; nothing is claimed before `run`."""
        self._parts = parts
        self._signal = signal
        self._config = config
        self._graph = build_graph()
        self._free = config.concurrency
        self._room = asyncio.Event()
        self._room.set()
        self._is_open = False
        self._turns: dict[asyncio.Task[None], tuple[RunId, Heartbeat]] = {}

    @property
    def is_claiming(self) -> bool:
        """Whether the claim loop is open, for readiness."""
        return self._is_open

    async def run(self) -> None:
        """Claim runs, oldest first, until `drain` or cancellation."""
        self._is_open = True
        try:
            while self._is_open:
                await self._room.wait()
                if not await self._claim_one():
                    await self._signal.wait(POLL_SECONDS)
        finally:
            self._is_open = False

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Keep the claim loop running inside the block, and drain at its end."""
        loop = asyncio.create_task(self.run())
        try:
            yield
        finally:
            await self.drain()
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)

    async def drain(self) -> None:
        """Stop claiming, let running turns end within the grace, then give the rest back."""
        self._is_open = False
        tasks = list(self._turns)
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=self._config.grace_seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def on_cancel(self, run_id: RunId) -> None:
        """A cancel was announced: look at once whether the run is one of ours."""
        for held, heartbeat in self._turns.values():
            if held == run_id:
                heartbeat.hurry()

    def reserve(self) -> Claimer | None:
        """Reserve a slot for a door; None where all are taken or the worker is not open."""
        if not self._is_open or self._free == 0:
            return None
        self._take_slot()
        return Claimer(worker=self._config.name, lease_seconds=self._config.lease_seconds)

    def start(self, claimed: ClaimedRun) -> None:
        """Take the claimed run through its turn in the reserved slot."""
        heartbeat = Heartbeat(self._parts.store, claimed.lease, self._config.lease_seconds)
        play = Play(parts=self._parts, graph=self._graph, claimed=claimed, heartbeat=heartbeat)
        task = asyncio.create_task(take_turn(play), name=f"turn {claimed.run.id}")
        self._turns[task] = (claimed.run.id, heartbeat)
        task.add_done_callback(lambda done: self._ended(claimed, done))

    def release(self) -> None:
        """Give a slot back."""
        self._free += 1
        self._room.set()

    async def _claim_one(self) -> bool:
        """Whether a run was claimed; an unreachable database is nothing claimed."""
        claimer = self.reserve()
        if claimer is None:
            return False
        try:
            claimed = await self._parts.store.claim_next(claimer)
        except ThroughlineError as error:
            log.warning("claiming failed, it is tried again", error=error.code)
            claimed = None
        except Exception as error:  # noqa: BLE001  # the outer loop: it must outlive whatever the database answers
            log.error("claiming broke, it is tried again", error=type(error).__name__)
            claimed = None
        except asyncio.CancelledError:
            self.release()
            raise
        if claimed is None:
            self.release()
            return False
        self.start(claimed)
        return True

    def _take_slot(self) -> None:
        self._free -= 1
        if self._free == 0:
            self._room.clear()

    def _ended(self, claimed: ClaimedRun, task: asyncio.Task[None]) -> None:
        self._turns.pop(task, None)
        self.release()
        self._signal.wake()  # the next message of this session may be waiting
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("turn ended without a record", run_id=str(claimed.run.id), error=type(error).__name__)
