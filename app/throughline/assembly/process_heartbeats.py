"""Heartbeat of a process: a timer keeps the process's row in the database up to date."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import structlog

from throughline.assembly.runtime import Runtime
from throughline.db.service_status import HEARTBEAT_SECONDS, ProcessRepository
from throughline.domain.basic_types import Clock
from throughline.domain.service_status import Process, ProcessState
from throughline.execution.error_boundary import ErrorBoundary, running_concurrently

# Configuration of Python's garbage collector for a process that runs for weeks.
#
# Each program calls `tune_collector` once its own set-up is complete.

YOUNG_OBJECTS = 8_000
YOUNG_PASSES = 10
MIDDLE_PASSES = 40
"""Thresholds of the collector's generations, in place of Python's own (700, 10, 10).

With Python's own, each turn paid for passes over all objects that the process keeps. After two minutes of load, these
passes took a tenth of the time, in pauses of a quarter of a second. Python counts created objects minus freed ones, so
under steady load a young pass visits up to five times YOUNG_OBJECTS.
"""


def tune_collector() -> None:
    """Exclude all objects that exist now from garbage collection, and collect others rarely."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_PASSES, MIDDLE_PASSES)


LOOK_SECONDS = 0.5
FORGET_SECONDS = 2.0
"""Seconds that a process waits at its end for the deletion of its row. A row that stays is shown as silent."""

log = structlog.get_logger(__name__)


class ProcessHeartbeats:
    """Heartbeat that writes the process's row every HEARTBEAT_SECONDS.

    It also writes soon after the process began or stopped to take turns or to listen.
    """

    def __init__(
        self, processes: ProcessRepository, process: Process, read_state: Callable[[], ProcessState], clock: Clock
    ) -> None:
        """Prepare the heartbeat. Nothing is written before `run`."""
        self._processes = processes
        self._process = process
        self._read_state = read_state
        self._clock = clock
        self._started_at = self._written_at = clock.monotonic()
        self._shown: tuple[bool, bool] | None = None

    async def run(self) -> None:
        """Write the row at intervals until cancelled; failures are only logged."""
        while True:
            state, now = self._read_state(), self._clock.monotonic()
            shown = (state.is_claiming, state.is_listening)
            if shown != self._shown or now - self._written_at >= HEARTBEAT_SECONDS:
                self._written_at, self._shown = now, shown
                with ErrorBoundary(log.info, "process heartbeat failed"):
                    await self._processes.heartbeat(self._process, state, up_seconds=now - self._started_at)
            await self._clock.sleep(LOOK_SECONDS)

    async def forget(self) -> None:
        """Delete the process's row, if the database answers within FORGET_SECONDS; a failure is only logged."""
        with ErrorBoundary(log.info, "process heartbeat deletion failed"):
            async with asyncio.timeout(FORGET_SECONDS):
                await self._processes.forget(self._process.id)


@asynccontextmanager
async def noted(runtime: Runtime, *, has_worker: bool) -> AsyncGenerator[None]:
    """Keep the row of this process in the table `processes` up to date while the context is open.

    `has_worker`: this process runs turns of all users. The row is deleted at the end.
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

    heartbeats = ProcessHeartbeats(
        runtime.database.processes, runtime.process, read_state, runtime.turn_dependencies.clock
    )
    try:
        async with running_concurrently(heartbeats.run, "process heartbeat"):
            yield
    finally:
        await heartbeats.forget()
