"""A process beats by a timer of its own, and whatever becomes of a beat, the process goes on."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from uuid import UUID

from fakes.raw_sql import run_sql
from fakes.waiting import until, until_found
from throughline.assembly.process_heartbeats import ProcessHeartbeats
from throughline.db.database import Database
from throughline.db.service_status import HEARTBEAT_SECONDS
from throughline.domain.basic_types import ProcessId
from throughline.domain.service_status import Process, ProcessKind, ProcessState

PROCESS = Process(ProcessId(UUID(int=1)), ProcessKind.WORKER, "host:1:00000001", "0.1.0")


class SteppedClock:
    """A clock on which whoever sleeps waits until it is moved on."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._moved = asyncio.Event()
        self.sleeps = 0

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        until_seconds = self.seconds + seconds
        self.sleeps += 1
        while self.seconds < until_seconds:
            await self._moved.wait()

    async def advance(self, seconds: float) -> None:
        """Move on; whoever slept has come to the next sleep afterwards."""
        await until(lambda: self.sleeps > 0)
        before = self.sleeps
        self.seconds += seconds
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        await until(lambda: self.sleeps > before)


@dataclass
class Beating:
    beats: ProcessHeartbeats
    clock: SteppedClock
    state: ProcessState


@asynccontextmanager
async def beating(database: Database) -> AsyncGenerator[Beating]:
    clock = SteppedClock()
    state = ProcessState(500, open_turns=0, jobs_in_hand=0, is_claiming=False, is_listening=True)
    stage = Beating(
        ProcessHeartbeats(database.processes, PROCESS, lambda: stage.state, clock),  # type: ignore[arg-type]  # no wall time
        clock,
        state,
    )
    task = asyncio.create_task(stage.beats.run())
    try:
        yield stage
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def rows(url: str) -> list[tuple[object, ...]]:
    return await run_sql(url, "select is_claiming, open_turns from processes")


async def test_a_process_beats_at_its_start_and_then_by_the_clock(database: Database, database_url: str) -> None:
    async with beating(database) as stage:
        await until(lambda: stage.clock.sleeps > 0)
        at_start = await rows(database_url)
        stage.state = replace(stage.state, open_turns=3)
        await stage.clock.advance(HEARTBEAT_SECONDS / 2)
        between = await rows(database_url)
        await stage.clock.advance(HEARTBEAT_SECONDS / 2)
        at_its_time = await rows(database_url)

    assert at_start == between == [(False, 0)]
    assert at_its_time == [(False, 3)]


async def test_a_process_that_begins_to_take_turns_says_so_at_once(database: Database, database_url: str) -> None:
    async with beating(database) as stage:
        stage.state = replace(stage.state, is_claiming=True)
        await stage.clock.advance(0.5)
        found = await rows(database_url)

    assert found == [(True, 0)]


async def test_a_beat_that_fails_is_made_up_for_by_the_next(database: Database, database_url: str) -> None:
    async with beating(database) as stage:
        await until(lambda: stage.clock.sleeps > 0)
        await run_sql(database_url, "alter table processes rename to elsewhere")
        await stage.clock.advance(HEARTBEAT_SECONDS)
        await run_sql(database_url, "alter table elsewhere rename to processes")
        await run_sql(database_url, "truncate processes")
        await stage.clock.advance(HEARTBEAT_SECONDS)
        found = await rows(database_url)

    assert found == [(False, 0)]


async def test_the_end_of_a_process_does_not_fail_over_its_row(database: Database, database_url: str) -> None:
    async with beating(database) as stage:
        await until_found(lambda: rows(database_url))
    await run_sql(database_url, "alter table processes rename to elsewhere")

    await stage.beats.forget()
    await run_sql(database_url, "alter table elsewhere rename to processes")
    left = await rows(database_url)
    await stage.beats.forget()

    assert left == [(False, 0)]
    assert await rows(database_url) == []
