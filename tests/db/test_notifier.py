"""The notifier: notifications reach all who wait, in each process, and come back after a lost connection."""

import asyncio
from collections.abc import AsyncGenerator
from uuid import UUID

import pytest

from fakes.conversations import Conversation, claim_next
from fakes.event_log import MESSAGE_ID
from fakes.pooler import urls_of
from fakes.raw_sql import BACKENDS, hold_rows, run_sql, slow_request
from fakes.service_process import free_port
from fakes.silent_metrics import delete_old_rows
from fakes.stage import Stage, open_stage
from fakes.waiting import HANG_SECONDS
from throughline.assembly.front_ends import storages
from throughline.db.connection.migrations import head_revision
from throughline.db.connection.notifier import Notification, read_payload, write_payloads
from throughline.db.connection.signals import MOST_KEPT, RunSignal
from throughline.db.database import Database, DatabaseConfig
from throughline.db.service_status import SILENT_SECONDS, read_service_status
from throughline.db.side_jobs import Job
from throughline.domain.basic_types import ProcessId, RunId
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable
from throughline.domain.events import AnswerReset, MessageDelta, NewEvent, RunEvent
from throughline.domain.run import Claimer, Outcome, RunStatus
from throughline.domain.service_status import Process, ProcessKind, ProcessState, QueueState, ServiceStatus
from throughline.turn.worker.retention import SILENT_PROCESS_HOURS

pytestmark = pytest.mark.listening("it is about notifications")


@pytest.fixture
async def elsewhere(database_url: str) -> AsyncGenerator[Database]:
    """Another process's view of the same database."""
    opened = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=1))
    yield opened
    await opened.close()


async def test_a_reader_elsewhere_is_woken_by_new_events(conversation: Conversation, elsewhere: Database) -> None:
    claimed = await conversation.start()

    async with elsewhere.notifier.subscribe(claimed.run.id) as signal, asyncio.timeout(HANG_SECONDS):
        await conversation.database.events.append_events(claimed.lease, [NewEvent(1, AnswerReset(1))])
        await signal.wait(HANG_SECONDS * 2)

    assert len(await elsewhere.events.read_events(claimed.run.id, 0)) == 1


@pytest.mark.parametrize("is_here", [True, False])
async def test_who_waits_for_the_end_is_woken_by_nothing_before_it(
    conversation: Conversation, elsewhere: Database, *, is_here: bool
) -> None:
    claimed = await conversation.start()
    notifier = conversation.database.notifier if is_here else elsewhere.notifier

    async with (
        notifier.subscribe(claimed.run.id) as of_events,
        notifier.subscribe(claimed.run.id, ends_only=True) as of_end,
        asyncio.timeout(HANG_SECONDS),
    ):
        await conversation.database.events.append_events(claimed.lease, [NewEvent(1, AnswerReset(1))])
        await of_events.wait(HANG_SECONDS * 2)
        before = of_end.times
        await conversation.database.runs.finish(claimed.lease, Outcome(RunStatus.SUCCEEDED), (), 2)
        ended = await of_end.wait(HANG_SECONDS * 2)

    assert (before, ended) == (0, True)


async def test_a_reader_here_is_woken_without_the_database(conversation: Conversation) -> None:
    run_id = RunId(UUID(int=7))

    async with conversation.database.notifier.subscribe(run_id) as signal, asyncio.timeout(HANG_SECONDS):
        conversation.database.notifier.announce_events(run_id)
        assert await signal.wait(HANG_SECONDS * 2)


async def test_claim_loops_everywhere_are_woken_by_a_waiting_run(
    conversation: Conversation, elsewhere: Database
) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        await conversation.submit()
        assert await conversation.database.notifier.work.wait(HANG_SECONDS * 2)
        assert await elsewhere.notifier.work.wait(HANG_SECONDS * 2)


async def test_the_holder_of_a_run_learns_of_a_cancel_elsewhere(
    conversation: Conversation, elsewhere: Database
) -> None:
    claimed = await conversation.start()
    heard: asyncio.Queue[RunId] = asyncio.Queue()
    conversation.database.notifier.on_cancel(heard.put_nowait)

    await elsewhere.runs.request_cancel(conversation.owner_id, claimed.run.id)

    async with asyncio.timeout(HANG_SECONDS):
        assert await heard.get() == claimed.run.id


async def test_a_killed_connection_comes_back_and_wakes_everybody(
    conversation: Conversation, elsewhere: Database, database_url: str
) -> None:
    kill = f"select pg_terminate_backend(pid) from {BACKENDS} where application_name = 'throughline listener'"

    async with elsewhere.notifier.subscribe(RunId(UUID(int=1))) as signal, asyncio.timeout(HANG_SECONDS):
        await run_sql(database_url, kill)
        await signal.wait(HANG_SECONDS * 2)

    assert elsewhere.notifier.is_listening
    claimed = await conversation.start()
    async with elsewhere.notifier.subscribe(claimed.run.id) as signal, asyncio.timeout(HANG_SECONDS):
        while not await elsewhere.events.read_events(claimed.run.id, 0):
            if conversation.database.notifier.is_listening:
                await conversation.database.events.append_events(claimed.lease, [NewEvent(1, AnswerReset(1))])
            await signal.wait(0.05)


async def test_a_wait_ends_after_its_timeout_without_news(database: Database) -> None:
    async with database.notifier.subscribe(RunId(UUID(int=1))) as signal, asyncio.timeout(HANG_SECONDS):
        assert not await signal.wait(0.01)


async def test_news_between_two_waits_is_not_missed(database: Database) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        database.notifier.work.wake()
        assert await database.notifier.work.wait(HANG_SECONDS * 2)


def test_payloads_carry_everything_and_never_exceed_postgres_limit() -> None:
    notification = Notification(
        events=frozenset(RunId(UUID(int=n)) for n in range(1000)),
        cancels=frozenset({RunId(UUID(int=2**127))}),
        has_work=True,
        ends=frozenset(RunId(UUID(int=n)) for n in range(500, 1000)),
        has_jobs=True,
    )

    payloads = write_payloads(notification)

    assert all(len(payload.encode()) < 8000 for payload in payloads)
    read = [read_payload(payload) for payload in payloads]
    assert frozenset().union(*(one.events for one in read)) == notification.events
    assert frozenset().union(*(one.ends for one in read)) == notification.ends
    assert frozenset().union(*(one.cancels for one in read)) == notification.cancels
    assert sum(one.has_work for one in read) == sum(one.has_jobs for one in read) == 1


@pytest.mark.parametrize("payload", ["", "x", "e:zz", "q:00", "e", "::", "e:1,2"])
def test_a_payload_of_somebody_else_is_no_news(payload: str) -> None:
    assert read_payload(payload) == Notification()


def event(seq: int) -> RunEvent:
    return RunEvent(RunId(UUID(int=1)), seq, MessageDelta(MESSAGE_ID, str(seq)))


def test_events_brought_with_the_news_are_taken_once_and_only_without_a_gap() -> None:
    signal = RunSignal()

    signal.bring([event(1), event(2)])
    first = signal.after(0)
    again = signal.after(0)
    signal.bring([event(4)])
    after_a_gap = signal.after(2)

    assert [taken.seq for taken in first] == [1, 2]
    assert again == ()
    assert after_a_gap == ()


def test_events_brought_are_read_from_the_table_if_others_may_have_written_more() -> None:
    signal = RunSignal()

    signal.bring([event(1)])
    signal.wake()
    after_a_notification = signal.after(0)
    signal.bring([event(1)])
    signal.bring([])
    after_a_change_of_the_run = signal.after(0)
    signal.bring([event(2)])
    afterwards = signal.after(1)

    assert (after_a_notification, after_a_change_of_the_run) == ((), ())
    assert [taken.seq for taken in afterwards] == [2]


def test_a_slow_reader_is_sent_back_to_the_table_and_costs_no_memory() -> None:
    signal = RunSignal()

    for seq in range(1, 2000):
        signal.bring([event(seq)])

    assert len(signal.after(0)) <= MOST_KEPT


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
async def test_a_heartbeat_does_not_wait_for_the_connections_of_requests(database_url: str, pool_size: int) -> None:
    config = DatabaseConfig(url=database_url, pool_size=pool_size, pool_timeout_seconds=0.01)
    database = await Database.open(config)

    async with slow_request(database, database_url):
        await database.processes.heartbeat(process(1), IDLE, up_seconds=0)
    await database.close()

    assert await names(database_url) == ["host:1:00000001"]


WORKER = ProcessState(concurrency=500, open_turns=1, jobs_in_hand=2, is_claiming=True, is_listening=True)


@pytest.fixture
async def stage(database: Database) -> Stage:
    return await open_stage(database)


async def renew_heartbeat(stage: Stage, number: int, kind: ProcessKind, state: ProcessState) -> Process:
    process = Process(ProcessId(UUID(int=number)), kind, f"host:{number}", "0.1.0")
    await stage.database.processes.heartbeat(process, state, up_seconds=3600)
    return process


async def test_of_an_idle_service_the_processes_are_told(stage: Stage, database_url: str) -> None:
    await renew_heartbeat(stage, 1, ProcessKind.SERVE, SERVER)
    worker = await renew_heartbeat(stage, 2, ProcessKind.WORKER, WORKER)

    found = await read_service_status(database_url)

    assert found.schema == head_revision()
    assert [(noted.process.name, noted.takes_turns) for noted in found.processes] == [
        ("host:1", False),
        ("host:2", True),
    ]
    assert (found.processes[1].process, found.processes[1].state) == (worker, WORKER)
    assert found.processes[1].up_seconds >= 3600
    assert (found.queued, found.held, found.jobs, found.slack) == (QueueState(0, None), (), (), None)
    assert not found.is_stuck


async def test_a_silent_worker_takes_nothing_whatever_it_said_last(stage: Stage, database_url: str) -> None:
    await renew_heartbeat(stage, 1, ProcessKind.WORKER, WORKER)
    await stage.submit("is anybody there?")
    alive = await read_service_status(database_url)

    await run_sql(database_url, f"update processes set heartbeat_at = now() - interval '{SILENT_SECONDS + 60} seconds'")
    silent = await read_service_status(database_url)

    assert (alive.queued.waiting, alive.claiming_processes, alive.is_stuck) == (1, 1, False)
    assert (silent.processes[0].is_silent, silent.claiming_processes, silent.is_stuck) == (True, 0, True)


async def test_a_server_without_a_worker_leaves_what_waits_stuck(stage: Stage, database_url: str) -> None:
    await renew_heartbeat(stage, 1, ProcessKind.SERVE, SERVER)
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
        assert await claim_next(stage.database.runs, Claimer(worker=worker, lease_seconds=lease_seconds))

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
    used = (await read_service_status(database_url, storages())).slack
    await run_sql(
        database_url,
        "insert into slack_deliveries (id, team_id, channel_id, thread_ts, message_ts, reader_id, reader_team_id, "
        "status, lease_until, finished_at) values "
        "(gen_random_uuid(), 'T', 'C', '1', '1', 'U', 'T', 'waiting', null, null), "
        "(gen_random_uuid(), 'T', 'C', '1', '2', 'U', 'T', 'delivering', now(), null), "
        "(gen_random_uuid(), 'T', 'C', '1', '3', 'U', 'T', 'failed', null, now()), "
        "(gen_random_uuid(), 'T', 'C', '1', '4', 'U', 'T', 'failed', null, now() - interval '2 days')",
    )
    slack = (await read_service_status(database_url, storages())).slack

    assert used is not None
    assert (used.line, used.in_hand, used.failed) == (QueueState(0, None), 0, 0)
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
