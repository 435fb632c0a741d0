"""Keeps a process's row in the database up to date, by a timer of its own."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import structlog

from throughline.assembly.runtime import Runtime
from throughline.db.processes import HEARTBEAT_SECONDS, ProcessRepository
from throughline.domain.clock import Clock
from throughline.domain.process import Process, ProcessState
from throughline.execution.error_boundary import ErrorBoundary
from throughline.execution.running_concurrently import running_concurrently

LOOK_SECONDS = 0.5
FORGET_SECONDS = 2.0
"""How long the end of a process may wait for its row to go; one that stays is seen to be silent."""

log = structlog.get_logger(__name__)


class ProcessHeartbeats:
    """Writes every HEARTBEAT_SECONDS, and soon where the process began or ceased to take turns or to listen."""

    def __init__(
        self, processes: ProcessRepository, process: Process, read_state: Callable[[], ProcessState], clock: Clock
    ) -> None:
        """Nothing is written before `run`."""
        self._processes = processes
        self._process = process
        self._read_state = read_state
        self._clock = clock
        self._started_at = self._beat_at = clock.monotonic()
        self._shown: tuple[bool, bool] | None = None

    async def run(self) -> None:
        """Write again and again, whatever becomes of it."""
        while True:
            state, now = self._read_state(), self._clock.monotonic()
            shown = (state.is_claiming, state.is_listening)
            if shown != self._shown or now - self._beat_at >= HEARTBEAT_SECONDS:
                self._beat_at, self._shown = now, shown
                with ErrorBoundary(log.info, "process could not note that it is there"):
                    await self._processes.beat(self._process, state, up_seconds=now - self._started_at)
            await self._clock.sleep(LOOK_SECONDS)

    async def forget(self) -> None:
        """Take the row away, if the database answers soon."""
        with ErrorBoundary(log.info, "process could not note that it ends"):
            async with asyncio.timeout(FORGET_SECONDS):
                await self._processes.forget(self._process.id)


@asynccontextmanager
async def noted(runtime: Runtime, *, has_worker: bool) -> AsyncGenerator[None]:
    """Have the database show this process inside the block, its draining included.

    `has_worker`: turns run in this very process, whosoever they are.
    """

    def read_state() -> ProcessState:
        worker = runtime.worker
        return ProcessState(
            concurrency=worker.concurrency if has_worker else 0,
            open_turns=worker.open_turns,
            jobs_in_hand=worker.jobs_in_hand,
            is_claiming=has_worker and worker.is_claiming,
            is_listening=runtime.database.notifier.is_listening,
        )

    beats = ProcessHeartbeats(runtime.database.processes, runtime.process, read_state, runtime.turn_dependencies.clock)
    try:
        async with running_concurrently(beats.run(), "beat"):
            yield
    finally:
        await beats.forget()
