"""Taking side jobs out of the queue, on one connection beside the pool, begun anew after every loss."""

import asyncio
import time
from datetime import timedelta

import asyncpg  # type: ignore[import-untyped]  # ships no types
import structlog

from throughline.db.connection.address import Address
from throughline.db.connection.limits import SESSION_SETTINGS
from throughline.db.connection.pool import ANSWER_TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS
from throughline.db.jobs.held_jobs import Answers
from throughline.db.jobs.queue import JobBook
from throughline.db.jobs.taking import Taking
from throughline.execution.error_boundary import ErrorBoundary

GIVEN_UP_AFTER = timedelta(seconds=30)
"""A job whose process has given no sign of life for so long is taken by another."""

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
        self._taking: Taking | None = None
        self._answers = Answers()

    @property
    def is_taking(self) -> bool:
        """Whether jobs are being taken at present: the database answered when it was last asked for some."""
        return self._answers.is_heard and not self._closing.is_set()

    def has_taken_within(self, seconds: float) -> bool:
        """Whether jobs are being taken, or were so long ago at most: a connection that is lost is soon begun anew."""
        silent_seconds = 0 if self.is_taking else time.monotonic() - self._answers.heard_at
        return not self._closing.is_set() and silent_seconds <= seconds

    def close(self) -> None:
        """Take no more; `run` returns once the jobs in hand are ended."""
        self._closing.set()
        if self._taking is not None:
            self._taking.close()

    async def run(self, book: JobBook, *, most_at_once: int) -> None:
        """Take jobs until `close`; whatever the database does, it is tried again."""
        pause = FIRST_PAUSE_SECONDS
        while not self._closing.is_set():
            began = time.monotonic()
            with ErrorBoundary(log.warning, "taking jobs broke, it is tried again"):
                await self._take_while_connected(book, most_at_once)
            was_heard = self._answers.heard_at >= began
            pause = FIRST_PAUSE_SECONDS if was_heard else min(pause * 2, LONGEST_PAUSE_SECONDS)
            await self._pause(pause)

    async def _take_while_connected(self, book: JobBook, most_at_once: int) -> None:
        connection = await asyncpg.connect(
            **self._address.arguments(),
            timeout=CONNECT_TIMEOUT_SECONDS,
            command_timeout=ANSWER_TIMEOUT_SECONDS,
            server_settings={**SESSION_SETTINGS, "application_name": "throughline jobs"},
        )
        self._taking = Taking(connection, book, self._answers, given_up_after=self._given_up_after)
        if self._closing.is_set():
            self._taking.close()
        try:
            await self._taking.run(most_at_once)
        finally:
            self._taking = None
            await _disconnect(connection)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return


async def _disconnect(connection: asyncpg.Connection) -> None:
    try:
        await connection.close(timeout=CONNECT_TIMEOUT_SECONDS)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        connection.terminate()
