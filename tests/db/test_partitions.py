"""Partitions by time: made ahead, dropped when all their rows have expired, and never in the way of a turn."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from fakes.event_log import MESSAGE_ID
from fakes.pooler import shared_address
from fakes.raw_sql import ExplainedTransactions, hold_rows, nodes_of, run_sql
from fakes.scripted_model import Say
from fakes.stage import Stage, open_stage
from fakes.waiting import ManualClock
from throughline.db import partitions as partitions_module
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.database import Database
from throughline.db.runs.events import end_event_number
from throughline.db.tables.partitions import Partitioned, PartitionPeriod, earlier_id, first_id
from throughline.db.tables.runs import MODEL_CALLS, RUN_EVENTS
from throughline.db.usage import UsageRepository
from throughline.domain.basic_types import RunId
from throughline.domain.errors import DatabaseBusy, DatabaseUnusable
from throughline.domain.events import MessageDelta
from throughline.domain.prompt import Usage
from throughline.domain.run import RunStatus
from throughline.domain.usage_report import CallPurpose, ModelCall, Payer, UsageQuery
from throughline.turn.worker.retention import Retention, RetentionConfig

DAY = timedelta(days=1)
CALL = ModelCall("openai:gpt-4o", CallPurpose.ANSWER, Usage(10, 5))
NAMES = "select inhrelid::regclass::text from pg_inherits where inhparent = $1::text::regclass order by 1"


@pytest.fixture
async def stage(database: Database) -> Stage:
    stage = await open_stage(database)
    stage.model.by_request = lambda _: Say("Good day.")
    return stage


def retention_of(stage: Stage, config: RetentionConfig | None = None) -> Retention:
    return Retention(stage.database.retention, ManualClock(), stage.metrics, config or RetentionConfig())


def name_of(partitioned: Partitioned, time: datetime) -> str:
    return f"{partitioned.table}_{time:{partitioned.period.value}}"


def id_at(time: datetime, number: int = 0) -> UUID:
    return UUID(int=first_id(time).int | 0x7000_8000_0000_0000_0000 | number)


async def names(url: str, partitioned: Partitioned) -> list[object]:
    return [name for (name,) in await run_sql(url, NAMES, partitioned.table)]


async def create(url: str, partitioned: Partitioned, time: datetime) -> str:
    """Make the partition of a past time and return its name."""
    for statement in partitioned.create(partitioned.period.start(time)):
        await run_sql(url, statement)
    return name_of(partitioned, time)


async def store_run(stage: Stage, url: str, run_id: UUID, *, finished_hours_ago: int | None) -> RunId:
    """Store a run with two events."""
    await run_sql(
        url,
        "insert into runs (id, session_id, owner_id, agent, status, input, source, started_at, finished_at) "
        "values ($1, $2, $3, 'assistant', $4, $6, 'api', now(), now() - make_interval(hours => $5))",
        run_id,
        stage.session.id,
        stage.owner_id,
        RunStatus.QUEUED.value if finished_hours_ago is None else RunStatus.SUCCEEDED.value,
        finished_hours_ago,
        '{"content": "long ago", "metadata": {}}',
    )
    await store_events(url, run_id)
    return RunId(run_id)


async def store_events(url: str, run_id: UUID) -> None:
    delta = f'{{"message_id": "{MESSAGE_ID}", "text": "a"}}'
    await run_sql(
        url,
        "insert into run_events (run_id, seq, type, data) "
        "select $1, seq, 'message.delta', cast($2::text as json) from generate_series(1, 2) seq",
        run_id,
        delta,
    )


async def stored_in(url: str, table: str) -> dict[object, object]:
    """Return the number of rows of a partitioned table by partition."""
    rows = await run_sql(url, f"select tableoid::regclass::text, count(*) from {table} group by 1")
    return {name: number for name, number in rows}  # noqa: C416  # each row is a pair


def test_ids_of_a_time_lie_between_its_first_id_and_the_next_period() -> None:
    start = datetime(2026, 12, 31, tzinfo=UTC)
    made = id_at(start + timedelta(hours=23, minutes=59, seconds=59, milliseconds=999), 2**60)

    assert first_id(start) < made < first_id(PartitionPeriod.DAY.next(start))
    assert PartitionPeriod.MONTH.start(start) == datetime(2026, 12, 1, tzinfo=UTC)
    assert (
        PartitionPeriod.MONTH.next(PartitionPeriod.MONTH.start(start))
        == PartitionPeriod.DAY.next(start)
        == datetime(2027, 1, 1, tzinfo=UTC)
    )
    assert earlier_id(first_id(start), DAY) == first_id(start, -DAY) == first_id(start - DAY)


def test_the_first_and_the_last_time_have_ids() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

    assert first_id(first, -DAY) == UUID(int=0)
    assert first_id(last) < first_id(last, DAY) < first_id(last, 10_000 * 365 * DAY)


async def test_a_turn_is_stored_in_the_partitions_of_its_time_which_were_made_ahead(
    stage: Stage, database_url: str
) -> None:
    before = datetime.now(UTC)
    run = await stage.turn("hello")
    await stage.database.usage.store_calls(Payer(stage.owner_id), [CALL])
    after = datetime.now(UTC)

    events = await stored_in(database_url, "run_events")
    calls = await stored_in(database_url, "model_calls")
    assert events
    assert calls
    assert events.keys() <= {name_of(RUN_EVENTS, before), name_of(RUN_EVENTS, after)}
    assert calls.keys() <= {name_of(MODEL_CALLS, before), name_of(MODEL_CALLS, after)}
    assert len(await stage.database.events.read_events(run.id, 0)) == sum(int(str(rows)) for rows in events.values())


async def test_missing_partitions_are_made_once_however_many_make_them(stage: Stage, database_url: str) -> None:
    whole = await names(database_url, RUN_EVENTS)
    missing = name_of(RUN_EVENTS, datetime.now(UTC) + DAY)
    await run_sql(database_url, f"drop table {missing}")
    lacking = await names(database_url, RUN_EVENTS)

    await asyncio.gather(*(retention_of(stage).run() for _ in range(3)))

    assert set(whole) - set(lacking) == {missing}
    assert set(whole) <= set(await names(database_url, RUN_EVENTS))


async def test_rows_without_a_partition_are_stored_read_and_deleted_all_the_same(
    stage: Stage, database_url: str
) -> None:
    for name in await names(database_url, RUN_EVENTS):
        if name != RUN_EVENTS.default:
            await run_sql(database_url, f"drop table {name}")
    run = await stage.turn("hello")
    await store_run(stage, database_url, id_at(datetime.now(UTC) - 2 * DAY), finished_hours_ago=25)

    made = await stage.database.retention.partitions[0].prepare()
    found = await stored_in(database_url, "run_events")
    await retention_of(stage).run()

    assert made == 2
    assert found.keys() == {RUN_EVENTS.default, name_of(RUN_EVENTS, datetime.now(UTC))}
    assert {run_id for (run_id,) in await run_sql(database_url, "select run_id from run_events")} == {run.id}
    assert (await stage.database.events.read_events(run.id, 0))[-1].event.type.value == "run.completed"


BOUNDS = "select conname from pg_constraint where conname like '%_bound'"


async def grow_default(stage: Stage, url: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, UUID]:
    """Let the default partition count as large, with rows of long ago and of tomorrow, whose partition is missing.

    Return the missing partition's name and the run of tomorrow's rows.
    """
    monkeypatch.setattr(partitions_module, "MOST_READ_BYTES", 0)
    monkeypatch.setattr(partitions_module, "LEAST_TIME_LEFT", timedelta(0))
    tomorrow = datetime.now(UTC) + DAY
    name = name_of(RUN_EVENTS, tomorrow)
    await run_sql(url, f"drop table {name}")
    await store_run(stage, url, id_at(datetime.now(UTC) - 3 * DAY), finished_hours_ago=2)
    return name, await store_run(stage, url, id_at(tomorrow), finished_hours_ago=None)


async def test_a_partition_is_made_beside_a_large_default_one_and_takes_its_rows(
    stage: Stage, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, run_of_tomorrow = await grow_default(stage, database_url, monkeypatch)

    made = await asyncio.gather(
        *(each.prepare() for each in stage.database.retention.partitions[:1] * 3), return_exceptions=True
    )

    assert 1 in made
    assert await stored_in(database_url, "run_events") == {RUN_EVENTS.default: 2, name: 2}
    assert len(await stage.database.events.read_events(RunId(run_of_tomorrow), 0)) == 2
    assert await run_sql(database_url, BOUNDS) == []
    assert await stage.database.retention.partitions[0].prepare() == 0


async def test_a_large_default_partition_takes_rows_again_if_a_new_one_fails(
    stage: Stage, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, run_of_tomorrow = await grow_default(stage, database_url, monkeypatch)
    keep = "create function keep() returns trigger language plpgsql as $$ begin return null; end $$"
    await run_sql(database_url, keep)
    await run_sql(
        database_url,
        f"create trigger keep before delete on {RUN_EVENTS.default} for each row execute function keep()",
    )

    with pytest.raises(DatabaseUnusable):
        await stage.database.retention.partitions[0].prepare()
    await store_events(database_url, id_at(datetime.now(UTC) + DAY, 7))

    assert name not in await names(database_url, RUN_EVENTS)
    assert await stored_in(database_url, "run_events") == {RUN_EVENTS.default: 6}
    assert len(await stage.database.events.read_events(RunId(run_of_tomorrow), 0)) == 2


@pytest.mark.parametrize(("most_read", "created"), [(0, 0), (16_000_000, 1)])
async def test_a_constraint_that_a_killed_process_left_is_dropped(
    stage: Stage, database_url: str, monkeypatch: pytest.MonkeyPatch, most_read: int, created: int
) -> None:
    await grow_default(stage, database_url, monkeypatch)
    monkeypatch.setattr(partitions_module, "MOST_READ_BYTES", most_read)
    monkeypatch.setattr(partitions_module, "LEAST_TIME_LEFT", 2 * DAY)  # too late to close the default one
    await run_sql(
        database_url,
        f"alter table {RUN_EVENTS.default} add constraint {RUN_EVENTS.default}_bound "
        f"check (run_id < '{first_id(datetime.now(UTC))}') not valid",
    )

    made = await stage.database.retention.partitions[0].prepare()

    assert made == created
    assert await run_sql(database_url, BOUNDS) == []


async def test_a_constraint_that_was_left_is_told_of_and_dropped_once_its_lock_is_free(
    stage: Stage, database_url: str
) -> None:
    await run_sql(
        database_url,
        f"alter table {RUN_EVENTS.default} add constraint {RUN_EVENTS.default}_bound "
        f"check (run_id < '{first_id(datetime.now(UTC))}') not valid",
    )
    events = stage.database.retention.partitions[0]

    with capture_logs() as logs:
        async with hold_rows(database_url, f"select from {RUN_EVENTS.default}"):
            with pytest.raises(DatabaseBusy):
                await events.prepare()
        left = await run_sql(database_url, BOUNDS)
        made = [await events.prepare(), await events.prepare()]

    assert len(left) == 1
    assert made == [0, 0]
    assert await run_sql(database_url, BOUNDS) == []
    assert [line["event"] for line in logs] == ["default partition found closed, perhaps by an interrupted change"] * 2


async def test_a_day_goes_with_its_partition_and_leaves_what_is_still_wanted(stage: Stage, database_url: str) -> None:
    day = datetime.now(UTC) - 3 * DAY
    name = await create(database_url, RUN_EVENTS, day)
    today = (await stage.turn("hello")).id
    ended = await store_run(stage, database_url, id_at(day, 1), finished_hours_ago=40)
    recent = await store_run(stage, database_url, id_at(day, 2), finished_hours_ago=2)
    waiting = await store_run(stage, database_url, id_at(day, 3), finished_hours_ago=None)
    await store_events(database_url, id_at(day, 4))  # its run was erased
    events = stage.database.events

    await asyncio.gather(*(retention_of(stage).run() for _ in range(3)))

    assert name not in await names(database_url, RUN_EVENTS)
    assert {run_id for (run_id,) in await run_sql(database_url, "select distinct run_id from run_events")} == {
        recent,
        waiting,
        today,
    }
    assert await events.read_events(ended, 0) == ()
    assert [(event.seq, event.event) for event in await events.read_events(waiting, 0)] == [
        (1, MessageDelta(MESSAGE_ID, "a")),
        (2, MessageDelta(MESSAGE_ID, "a")),
    ]
    assert await end_event_number(events._transactions, waiting) == 3  # noqa: SLF001  # as a worker asks
    reports = [each for each in stage.metrics.of("retention_deleted") if each["kind"] == "run_events_days"]
    assert [report["count"] for report in reports if report["count"]] == [1]


async def test_moved_events_go_when_their_run_has_ended_for_long(stage: Stage, database_url: str) -> None:
    day = datetime.now(UTC) - 3 * DAY
    await create(database_url, RUN_EVENTS, day)
    await store_run(stage, database_url, id_at(day), finished_hours_ago=2)
    await retention_of(stage).run()
    moved = await stored_in(database_url, "run_events")

    await run_sql(database_url, "update runs set finished_at = now() - interval '25 hours'")
    await retention_of(stage).run()

    assert moved == {RUN_EVENTS.default: 2}
    assert await stored_in(database_url, "run_events") == {}


async def test_the_day_before_stays_until_all_of_it_is_old_enough(stage: Stage, database_url: str) -> None:
    yesterday = datetime.now(UTC) - DAY
    name = await create(database_url, RUN_EVENTS, yesterday)
    await store_run(stage, database_url, id_at(yesterday), finished_hours_ago=24)

    await retention_of(stage).run()

    assert await stored_in(database_url, "run_events") == {name: 2}


@pytest.mark.parametrize("limit", ["MOST_MOVED_ROWS", "MOST_KEPT_RUNS"])
async def test_a_day_with_much_that_is_still_wanted_stays_and_loses_the_rest(
    stage: Stage, database_url: str, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(partitions_module, limit, 1)
    monkeypatch.setattr(partitions_module, "RUNS_AT_ONCE", 2)
    day = datetime.now(UTC) - 3 * DAY
    name = await create(database_url, RUN_EVENTS, day)
    for number, hours in enumerate((40, None, 2, 40, 40)):
        await store_run(stage, database_url, id_at(day, number), finished_hours_ago=hours)

    await retention_of(stage).run()
    left = await stored_in(database_url, "run_events")
    await run_sql(database_url, "update runs set status = 'failed', finished_at = now() - interval '25 hours'")
    await retention_of(stage).run()

    assert left == {name: 4}
    counted = {str(each["kind"]) for each in stage.metrics.of("retention_deleted")}
    assert counted & {name, "run_events", "run_events_days"} == {"run_events", "run_events_days"}
    assert name not in await names(database_url, RUN_EVENTS)


@pytest.mark.parametrize("held", ["select from run_events", "lock table run_events_default in row exclusive mode"])
async def test_what_holds_a_lock_delays_the_change_and_no_other_work(
    stage: Stage, database_url: str, held: str
) -> None:
    day = datetime.now(UTC) - 3 * DAY
    name = await create(database_url, RUN_EVENTS, day)
    await store_run(stage, database_url, id_at(day), finished_hours_ago=40)
    await run_sql(database_url, "insert into failed_jobs (kind, subject, failed_at) values ('x', '1', '2020-01-01')")

    async with hold_rows(database_url, held):
        await retention_of(stage).run()
        meanwhile = await stage.turn("hello")
    stayed = name in await names(database_url, RUN_EVENTS)
    await retention_of(stage).run()

    assert meanwhile.status is RunStatus.SUCCEEDED
    assert stayed
    assert stage.metrics.of("retention_failed") == [{"kind": "run_events_days"}]
    assert await run_sql(database_url, "select from failed_jobs") == []
    assert name not in await names(database_url, RUN_EVENTS)


async def test_model_calls_are_kept_for_ever_unless_months_are_set(stage: Stage, database_url: str) -> None:
    old, older = datetime.now(UTC) - 70 * DAY, datetime.now(UTC) - 700 * DAY
    name = await create(database_url, MODEL_CALLS, old)
    insert = "insert into model_calls (id, model, purpose, created_at) values ($1, 'm', 'answer', $2)"
    for time in (old, older, datetime.now(UTC)):
        await run_sql(database_url, insert, id_at(time), time)

    await retention_of(stage).run()
    kept = await stored_in(database_url, "model_calls")
    await retention_of(stage, RetentionConfig(model_calls_months=1)).run()
    left = await stored_in(database_url, "model_calls")

    assert sorted(str(rows) for rows in kept.values()) == ["1", "1", "1"]
    assert kept.keys() > {name, MODEL_CALLS.default}
    assert left.keys() == kept.keys() - {name, MODEL_CALLS.default}


async def test_a_report_reads_only_the_months_of_its_time(stage: Stage, database_url: str) -> None:
    now = datetime.now(UTC)
    old = await create(database_url, MODEL_CALLS, now - 70 * DAY)
    usage = stage.database.usage
    await usage.store_calls(Payer(stage.owner_id), [CALL])
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    transactions = ExplainedTransactions(pool, "model_calls")

    (found,) = await UsageRepository(transactions).report(UsageQuery(stage.owner_id, now - DAY, now + DAY, ()))
    await pool.close()

    read = {str(node["Relation Name"]) for node in nodes_of(transactions.plan) if "Relation Name" in node}
    assert found.calls == 1
    assert name_of(MODEL_CALLS, now) in read
    assert old not in read


async def test_what_a_session_used_is_found_without_reading_what_others_used(stage: Stage, database_url: str) -> None:
    usage, other = stage.database.usage, await stage.database.users.get_or_create("other")
    await usage.store_calls(Payer(other), [CALL] * 5_000)
    await usage.store_calls(Payer(stage.owner_id, stage.session.id), [CALL])
    await run_sql(database_url, "analyze model_calls")
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    transactions = ExplainedTransactions(pool, "model_calls")

    used = await UsageRepository(transactions).of_session(stage.owner_id, stage.session.id)
    await pool.close()

    nodes = [node for node in nodes_of(transactions.plan) if "Relation Name" in node]
    assert used.output_tokens == 5
    assert sum(float(str(node.get("Rows Removed by Filter", 0))) for node in nodes) < 10
