"""Processes note that they are there: a row each, kept up to date, gone with them or after a day."""

from uuid import UUID

import pytest

from fakes.old_rows import delete_old_rows
from fakes.raw_sql import hold_rows, run_sql
from fakes.slow_request import slow_request
from throughline.db.database import Database, DatabaseConfig
from throughline.db.service_status import SILENT_SECONDS
from throughline.domain.basic_types import ProcessId
from throughline.domain.service_status import Process, ProcessKind, ProcessState
from throughline.turn.worker.retention import SILENT_PROCESS_HOURS

IDLE = ProcessState(concurrency=500, open_turns=0, jobs_in_hand=0, is_claiming=True, is_listening=True)
SERVER = ProcessState(concurrency=0, open_turns=0, jobs_in_hand=0, is_claiming=False, is_listening=True)
BUSY = ProcessState(concurrency=500, open_turns=7, jobs_in_hand=2, is_claiming=False, is_listening=False)
WHAT_IT_HAS = "select concurrency, open_turns, jobs_in_hand, is_claiming, is_listening from processes"


def process(number: int, kind: ProcessKind = ProcessKind.WORKER) -> Process:
    return Process(ProcessId(UUID(int=number)), kind, f"host:1:{number:08}", "0.1.0")


async def silence(url: str, number: int, seconds: float) -> None:
    await run_sql(
        url,
        "update processes set heartbeat_at = now() - make_interval(secs => $2) where id = $1",
        UUID(int=number),
        float(seconds),
    )


async def names(url: str) -> list[object]:
    return [name for (name,) in await run_sql(url, "select name from processes order by name")]


async def test_a_process_has_one_row_which_says_what_it_has_in_hand_now(database: Database, database_url: str) -> None:
    await database.processes.heartbeat(process(1), IDLE, up_seconds=0)
    before = await run_sql(database_url, "select started_at, heartbeat_at from processes")
    await database.processes.heartbeat(process(1), BUSY, up_seconds=5)
    after = await run_sql(database_url, "select started_at, heartbeat_at from processes")

    assert await run_sql(database_url, WHAT_IT_HAS) == [(500, 7, 2, False, False)]
    assert after[0][0] == before[0][0]
    assert after[0][1] > before[0][1]  # type: ignore[operator]  # times


async def test_a_row_that_was_lost_comes_back_with_the_time_of_the_start(database: Database, database_url: str) -> None:
    await database.processes.heartbeat(process(1), IDLE, up_seconds=0)
    await run_sql(database_url, "truncate processes")
    await database.processes.heartbeat(process(1), IDLE, up_seconds=3600)

    since = await run_sql(database_url, "select heartbeat_at - started_at = interval '1 hour' from processes")
    assert since == [(True,)]


async def test_two_processes_of_one_name_on_their_hosts_are_two(database: Database, database_url: str) -> None:
    await database.processes.heartbeat(process(1), IDLE, up_seconds=0)
    await database.processes.heartbeat(process(2), IDLE, up_seconds=0)

    assert await names(database_url) == ["host:1:00000001", "host:1:00000002"]


async def test_a_process_that_ends_leaves_nothing(database: Database, database_url: str) -> None:
    await database.processes.heartbeat(process(1), IDLE, up_seconds=0)
    await database.processes.heartbeat(process(2), IDLE, up_seconds=0)

    await database.processes.forget(process(1).id)

    assert await names(database_url) == ["host:1:00000002"]


async def test_what_was_silent_for_a_day_goes_by_retention(database: Database, database_url: str) -> None:
    for number in (1, 2, 3):
        await database.processes.heartbeat(process(number), IDLE, up_seconds=0)
    await silence(database_url, 1, SILENT_PROCESS_HOURS * 3600 - 60)
    await silence(database_url, 2, SILENT_PROCESS_HOURS * 3600 + 60)
    await silence(database_url, 3, SILENT_PROCESS_HOURS * 3600 + 60)

    async with hold_rows(database_url, f"select 1 from processes where id = '{UUID(int=3)}' for update"):
        await delete_old_rows(database)
        held = await names(database_url)
    await delete_old_rows(database)

    assert held == ["host:1:00000001", "host:1:00000003"]
    assert await names(database_url) == ["host:1:00000001"]


async def test_a_process_is_at_work_if_it_claims_and_said_so_lately(database: Database, database_url: str) -> None:
    assert await database.processes.count_claiming() == 0

    await database.processes.heartbeat(process(1), IDLE, up_seconds=0)
    await database.processes.heartbeat(process(2), SERVER, up_seconds=0)
    await database.processes.heartbeat(process(3), BUSY, up_seconds=0)
    await database.processes.heartbeat(process(4), IDLE, up_seconds=0)
    await silence(database_url, 4, SILENT_SECONDS + 60)

    assert await database.processes.count_claiming() == 1


@pytest.mark.parametrize("pool_size", [1])
async def test_a_beat_does_not_wait_for_the_connections_of_requests(database_url: str, pool_size: int) -> None:
    config = DatabaseConfig(url=database_url, pool_size=pool_size, pool_timeout_seconds=0.01)
    database = await Database.open(config)

    async with slow_request(database, database_url):
        await database.processes.heartbeat(process(1), IDLE, up_seconds=0)
    await database.close()

    assert await names(database_url) == ["host:1:00000001"]
