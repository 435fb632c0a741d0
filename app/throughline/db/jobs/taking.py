"""Taking jobs on one connection, for as long as it lasts: PgQueuer's two managers, and what they have in hand."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # ships no types
import structlog
from pgqueuer import AsyncpgDriver, PgQueuer
from pgqueuer.models import Job as QueuedJob
from pgqueuer.models import Schedule as DueSchedule

from throughline.db.jobs.held_jobs import Answers, HeldJobs, held_jobs
from throughline.db.jobs.names import CHANNEL
from throughline.db.jobs.queue import JobBook, Perform, Schedule
from throughline.execution.error_boundary import ErrorBoundary

POLL = timedelta(seconds=5)
"""How long a job may go unnoticed whose notification was lost."""

NEVER = timedelta(0)
CUT_AGAIN_SECONDS = 1.0
log = structlog.get_logger(__name__)


class Taking:
    """Takes jobs, and does what is due by the clock, on one connection."""

    def __init__(
        self, connection: asyncpg.Connection, book: JobBook, answers: Answers, *, given_up_after: timedelta
    ) -> None:
        """Nothing is taken before `run`; `answers` is told when the database answered."""
        self._connection = connection
        self._answers = answers
        self._given_up_after = given_up_after
        self._in_hand: set[asyncio.Task[Any]] = set()  # of whatever result
        self._lost = asyncio.Event()
        connection.add_termination_listener(lambda _: self._lost.set())
        held = held_jobs(AsyncpgDriver(connection), answers, give_up=connection.terminate)
        self._queuer = PgQueuer(held.driver, channel=CHANNEL, queries=held)
        for kind, perform in book.kinds.items():
            self._queuer.entrypoint(kind, accepts_context=False)(self._performing(perform, held))
        for schedule in book.schedules:
            self._queuer.schedule(schedule.name, schedule.times, accepts_context=False)(self._running(schedule))

    def close(self) -> None:
        """Take no more; `run` returns once what is in hand is ended."""
        self._queuer.shutdown.set()

    async def run(self, most_at_once: int) -> None:
        """Take jobs until `close`, or until the connection is lost. Raises what a part of it has failed with.

        After a failure, and where this is cancelled, what is in hand is cut: its signs of life have ended, so it is
        taken again. PgQueuer's own `run` would wait for it as long as it takes, and take nothing meanwhile.
        """
        taking = self._queuer.qm.run(
            dequeue_timeout=POLL,
            batch_size=1,
            max_concurrent_tasks=max(2, most_at_once),  # PgQueuer insists on two batches
            heartbeat_timeout=self._given_up_after,
            log_aggregation_interval=NEVER,
        )
        parts = [
            asyncio.create_task(taking, name="take jobs"),
            asyncio.create_task(self._queuer.sm.run(), name="keep to the clock"),
        ]
        both: asyncio.Future[Any] = asyncio.gather(*parts)
        losing: asyncio.Future[Any] = asyncio.create_task(self._lost.wait())
        both.add_done_callback(_look_at_end)
        try:
            await asyncio.wait([both, losing], return_when=asyncio.FIRST_COMPLETED)
            have_ended = both.done()
        finally:
            self._answers.disconnected()
            losing.cancel()
            await self._cut(parts)
            self._answers.disconnected()
        if have_ended:
            both.result()

    async def _cut(self, parts: list[asyncio.Task[None]]) -> None:
        """End what has not ended; on a connection that is closed nothing of it waits for the database."""
        while running := [part for part in parts if not part.done()]:
            self._connection.terminate()
            for task in (*self._in_hand, *running):
                task.cancel()
            await asyncio.wait(running, timeout=CUT_AGAIN_SECONDS)

    def _performing(self, perform: Perform, held: HeldJobs) -> Callable[[QueuedJob], Awaitable[None]]:
        async def handle(queued: QueuedJob) -> None:
            with (
                self._noted(),
                ErrorBoundary(log.warning, "job was not begun, it is taken again", kind=queued.entrypoint),
            ):
                await held.perform(perform, queued)

        return handle

    def _running(self, schedule: Schedule) -> Callable[[DueSchedule], Awaitable[None]]:
        async def handle(_due: DueSchedule) -> None:
            with self._noted():
                await schedule.run()

        return handle

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Have the task be among those in hand for the block."""
        task = asyncio.current_task()
        assert task is not None
        self._in_hand.add(task)
        try:
            yield
        finally:
            self._in_hand.discard(task)


def _look_at_end(both: asyncio.Future[Any]) -> None:
    """Have the error of a part that was cut off be nobody's."""
    if not both.cancelled():
        both.exception()
