"""What operators are shown of the service as a whole: processes, lines and leases, read without a trace."""

from uuid import UUID

import pytest

from fakes.raw_sql import run_sql
from fakes.service_process import free_port
from fakes.stage import Stage, open_stage
from throughline.db.connection.migrations import head_revision
from throughline.db.database import Database
from throughline.db.job_queue import Job
from throughline.db.service_status import SILENT_SECONDS, read_service_status
from throughline.domain.basic_types import ProcessId
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable
from throughline.domain.run import Claimer
from throughline.domain.service_status import Line, Process, ProcessKind, ProcessState, ServiceStatus

WORKER = ProcessState(concurrency=500, open_turns=1, jobs_in_hand=2, is_claiming=True, is_listening=True)
SERVER = ProcessState(concurrency=0, open_turns=0, jobs_in_hand=0, is_claiming=False, is_listening=True)


@pytest.fixture
async def stage(database: Database) -> Stage:
    return await open_stage(database)


async def beat(stage: Stage, number: int, kind: ProcessKind, state: ProcessState) -> Process:
    process = Process(ProcessId(UUID(int=number)), kind, f"host:{number}", "0.1.0")
    await stage.database.processes.heartbeat(process, state, up_seconds=3600)
    return process


async def test_of_an_idle_service_the_processes_are_told(stage: Stage, database_url: str) -> None:
    await beat(stage, 1, ProcessKind.SERVE, SERVER)
    worker = await beat(stage, 2, ProcessKind.WORKER, WORKER)

    found = await read_service_status(database_url)

    assert found.schema == head_revision()
    assert [(noted.process.name, noted.takes_turns) for noted in found.processes] == [
        ("host:1", False),
        ("host:2", True),
    ]
    assert (found.processes[1].process, found.processes[1].state) == (worker, WORKER)
    assert found.processes[1].up_seconds >= 3600
    assert (found.queued, found.held, found.jobs, found.slack) == (Line(0, None), (), (), None)
    assert not found.is_stuck


async def test_a_silent_worker_takes_nothing_whatever_it_said_last(stage: Stage, database_url: str) -> None:
    await beat(stage, 1, ProcessKind.WORKER, WORKER)
    await stage.submit("is anybody there?")
    alive = await read_service_status(database_url)

    await run_sql(database_url, f"update processes set heartbeat_at = now() - interval '{SILENT_SECONDS + 60} seconds'")
    silent = await read_service_status(database_url)

    assert (alive.queued.waiting, alive.claiming_processes, alive.is_stuck) == (1, 1, False)
    assert (silent.processes[0].is_silent, silent.claiming_processes, silent.is_stuck) == (True, 0, True)


async def test_a_server_without_a_worker_leaves_what_waits_stuck(stage: Stage, database_url: str) -> None:
    await beat(stage, 1, ProcessKind.SERVE, SERVER)
    before = await read_service_status(database_url)
    await stage.submit("is anybody there?")
    await run_sql(database_url, "update runs set created_at = now() - interval '90 seconds'")

    found = await read_service_status(database_url)

    assert not before.is_stuck
    assert found.is_stuck
    assert found.queued.waiting == 1
    assert found.queued.oldest_seconds is not None
    assert found.queued.oldest_seconds >= 90


async def test_leases_that_are_over_come_first_and_are_work_that_nobody_does(stage: Stage, database_url: str) -> None:
    for number in range(3):
        await stage.submit_elsewhere("hello", owner=f"owner {number}")
    for worker, lease_seconds in (("alive", 600.0), ("alive", 300.0), ("dead", 0.0)):
        assert await stage.database.runs.claim_next(Claimer(worker=worker, lease_seconds=lease_seconds))

    found = await read_service_status(database_url)

    assert [(held.worker, held.runs, held.expired) for held in found.held] == [("dead", 1, 1), ("alive", 2, 0)]
    assert found.held[0].lease_seconds <= 0
    assert 200 < found.held[1].lease_seconds <= 300
    assert (found.unclaimed_turns, found.is_stuck) == (1, True)


async def test_side_jobs_are_told_by_kind(stage: Stage, database_url: str) -> None:
    for subject in ("one", "two", "three"):
        await stage.database.jobs.enqueue(Job("prepare_summary", subject))
    await run_sql(database_url, "update jobs set lease_until = now() where subject = 'two'")
    later = "update jobs set due_at = now() + interval '1 hour', failures = 2 where subject = 'three'"
    await run_sql(database_url, later)
    await run_sql(
        database_url,
        "insert into failed_jobs (kind, subject, failed_at) values "
        "('embed_memories', '1', now()), ('embed_memories', '2', now() - interval '2 days')",
    )

    jobs = (await read_service_status(database_url)).jobs

    assert [(work.kind, work.line.waiting, work.retrying, work.in_hand, work.failed) for work in jobs] == [
        ("embed_memories", 0, 0, 0, 1),
        ("prepare_summary", 2, 1, 1, 0),
    ]
    assert jobs[0].line.oldest_seconds is None
    assert jobs[1].line.oldest_seconds is not None


async def test_answers_to_slack_are_told_where_slack_is_used(database_url: str) -> None:
    await run_sql(
        database_url,
        "insert into slack_conversations (team_id, channel_id, thread_ts, created_at, updated_at) "
        "values ('T', 'C', '1', now(), now())",
    )
    used = (await read_service_status(database_url)).slack
    await run_sql(
        database_url,
        "insert into slack_deliveries (id, team_id, channel_id, thread_ts, message_ts, reader_id, reader_team_id, "
        "status, lease_until, finished_at) values "
        "(gen_random_uuid(), 'T', 'C', '1', '1', 'U', 'T', 'waiting', null, null), "
        "(gen_random_uuid(), 'T', 'C', '1', '2', 'U', 'T', 'delivering', now(), null), "
        "(gen_random_uuid(), 'T', 'C', '1', '3', 'U', 'T', 'failed', null, now()), "
        "(gen_random_uuid(), 'T', 'C', '1', '4', 'U', 'T', 'failed', null, now() - interval '2 days')",
    )
    slack = (await read_service_status(database_url)).slack

    assert used is not None
    assert (used.line, used.in_hand, used.failed) == (Line(0, None), 0, 0)
    assert slack is not None
    assert (slack.line.waiting, slack.in_hand, slack.failed) == (1, 1, 1)


async def test_reading_writes_nothing(stage: Stage, database_url: str) -> None:
    await stage.submit("hello")
    name = (await run_sql(database_url, "select current_database()::text"))[0][0]
    await run_sql(database_url, f'alter database "{name}" set default_transaction_read_only = on')

    found: ServiceStatus = await read_service_status(database_url)

    assert found.queued.waiting == 1


async def test_another_schema_is_one_clear_sentence_and_left_alone(database_url: str, empty_database_url: str) -> None:
    with pytest.raises(DatabaseUnusable, match=r"revision none.*throughline db upgrade"):
        await read_service_status(empty_database_url)
    await run_sql(database_url, "update alembic_version set version_num = '0018'")
    with pytest.raises(DatabaseUnusable, match=r"revision 0018, .*export"):
        await read_service_status(database_url)
    await run_sql(database_url, "update alembic_version set version_num = '9999'")
    with pytest.raises(DatabaseUnusable, match=r"9999.*newer"):
        await read_service_status(database_url)

    assert await run_sql(database_url, "select version_num from alembic_version") == [("9999",)]
    assert await run_sql(empty_database_url, "select to_regclass('alembic_version')::text") == [(None,)]


async def test_a_database_that_is_away_is_unavailable() -> None:
    with pytest.raises(DatabaseUnavailable):
        await read_service_status(f"postgresql://nobody@127.0.0.1:{free_port()}/nowhere")
