"""Taking side jobs out of the queue: PgQueuer on one connection of its own, begun anew after every loss."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import asyncpg  # type: ignore[import-untyped]  # ships no types
import structlog
from pgqueuer import AsyncpgDriver, PgQueuer
from pgqueuer.models import Job as QueuedJob
from pgqueuer.models import Schedule as DueSchedule

from app.db.connection.address import Address
from app.db.connection.limits import SESSION_SETTINGS
from app.db.connection.pool import ANSWER_TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS
from app.db.jobs.held_jobs import HeldJobs, held_jobs
from app.db.jobs.names import CHANNEL
from app.db.jobs.queue import JobBook, Perform, Schedule
from app.execution.error_boundary import ErrorBoundary

POLL = timedelta(seconds=5)
"""How long a job may go unnoticed whose notification was lost."""

GIVEN_UP_AFTER = timedelta(seconds=30)
"""A job whose process has given no sign of life for so long is taken by another."""

NEVER = timedelta(0)
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
log = structlog.get_logger(__name__)


class JobConsumer:
    """Takes jobs while it runs. The connection is beside the pool, so jobs never compete with turns for one."""

    def __init__(self, address: Address, *, given_up_after: timedelta = GIVEN_UP_AFTER) -> None:
        """Nothing is connected before `run`; signs of life go out twice in `given_up_after`."""
        self._address = address
        self._given_up_after = given_up_after
        self._closing = asyncio.Event()
        self._queuer: PgQueuer | None = None
        self._taken_until = float("-inf")

    @property
    def is_taking(self) -> bool:
        """Whether jobs are being taken at present."""
        return self.has_taken_within(0)

    def has_taken_within(self, seconds: float) -> bool:
        """Whether jobs are being taken, or were so long ago at most: a connection that is lost is soon begun anew."""
        silent_seconds = 0 if self._queuer is not None else time.monotonic() - self._taken_until
        return not self._closing.is_set() and silent_seconds <= seconds

    def close(self) -> None:
        """Take no more; `run` returns once the jobs in hand are ended."""
        self._closing.set()
        if self._queuer is not None:
            self._queuer.shutdown.set()

    async def run(self, book: JobBook, *, most_at_once: int) -> None:
        """Take jobs until `close`; whatever the database does, it is tried again."""
        pause = FIRST_PAUSE_SECONDS
        while not self._closing.is_set():
            with ErrorBoundary(log.warning, "taking jobs broke, it is tried again") as taking:
                await self._take_while_connected(book, most_at_once)
            pause = FIRST_PAUSE_SECONDS if taking.error is None else min(pause * 2, LONGEST_PAUSE_SECONDS)
            await self._pause(pause)

    async def _take_while_connected(self, book: JobBook, most_at_once: int) -> None:
        connection = await asyncpg.connect(
            **self._address.arguments(),
            timeout=CONNECT_TIMEOUT_SECONDS,
            command_timeout=ANSWER_TIMEOUT_SECONDS,
            server_settings={**SESSION_SETTINGS, "application_name": "throughline jobs"},
        )
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        self._queuer = _queuer_on(AsyncpgDriver(connection), book)
        if self._closing.is_set():
            self._queuer.shutdown.set()
        try:
            await self._until(lost, self._queuer, most_at_once)
        finally:
            self._queuer, self._taken_until = None, time.monotonic()
            await _disconnect(connection)

    async def _until(self, lost: asyncio.Event, queuer: PgQueuer, most_at_once: int) -> None:
        """Take jobs until told to stop or the connection is lost; then those in hand are cut, and taken again later."""
        taking = asyncio.create_task(
            queuer.run(
                dequeue_timeout=POLL,
                batch_size=1,
                max_concurrent_tasks=max(2, most_at_once),  # PgQueuer insists on two batches
                heartbeat_timeout=self._given_up_after,
                log_aggregation_interval=NEVER,
            ),
            name="take jobs",
        )
        losing = asyncio.create_task(lost.wait())
        try:
            await asyncio.wait({taking, losing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = taking.done() and not taking.cancelled()
            taking.cancel()
            losing.cancel()
            await asyncio.gather(taking, losing, return_exceptions=True)
        if ended:
            taking.result()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return


def _queuer_on(driver: AsyncpgDriver, book: JobBook) -> PgQueuer:
    held = held_jobs(driver)
    queuer = PgQueuer(driver, channel=CHANNEL, queries=held)
    for kind, perform in book.kinds.items():
        queuer.entrypoint(kind, accepts_context=False)(_performing(perform, held))
    for schedule in book.schedules:
        queuer.schedule(schedule.name, schedule.times, accepts_context=False)(_running(schedule))
    return queuer


def _performing(perform: Perform, held: HeldJobs) -> Callable[[QueuedJob], Awaitable[None]]:
    async def handle(queued: QueuedJob) -> None:
        with ErrorBoundary(log.warning, "job was not begun or not ended, it is taken again", kind=queued.entrypoint):
            await held.perform(perform, queued)

    return handle


def _running(schedule: Schedule) -> Callable[[DueSchedule], Awaitable[None]]:
    async def handle(_due: DueSchedule) -> None:
        await schedule.run()

    return handle


async def _disconnect(connection: asyncpg.Connection) -> None:
    try:
        await connection.close(timeout=CONNECT_TIMEOUT_SECONDS)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        connection.terminate()
