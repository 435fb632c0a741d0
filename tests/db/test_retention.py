"""Retention: what is old goes, whole and in small batches; what anybody could still want stays."""

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from uuid import UUID

import pytest

from fakes.compactions import compact_now, fill, prepare_one
from fakes.conversations import Conversation, answer_message, user_message
from fakes.event_log import MESSAGE_ID
from fakes.raw_sql import BACKENDS, connected, hold_rows, nodes_of, run_sql, until_sql
from fakes.scripted_model import Say
from fakes.stage import Stage, open_stage, with_context
from fakes.waiting import ManualClock
from throughline.db.database import Database
from throughline.db.retention import RUNS_AT_ONCE, BatchResult, RetentionRepository, delete_batch
from throughline.db.runs.events import event_from
from throughline.db.side_jobs import KINDS, Job
from throughline.domain.basic_types import RunId
from throughline.domain.errors import DatabaseUnavailable
from throughline.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    Event,
    MessageCompleted,
    MessageDelta,
    NewEvent,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    ToolAnswered,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.keys import NewKey, NewToken, Scope
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.run import ClaimedRun, Outcome, RunStatus
from throughline.domain.summary import CompactionOutcome
from throughline.turn.follow_run import Following, Idle
from throughline.turn.worker.retention import Retention, RetentionConfig


@pytest.fixture
async def stage(database: Database) -> Stage:
    stage = await open_stage(
        database, agent=with_context(window=8192, min_recent_messages=2, max_messages_before_summary=10)
    )
    stage.model.by_request = lambda _: Say("## Intent\nThe user counts [#1-#2].")
    return stage


ONE_ROUND = 0.01
"""Seconds: the clock of these tests moves by the pause between two rounds alone, which is longer."""


def retention_of(stage: Stage, budget_seconds: float = 600) -> Retention:
    config = RetentionConfig(budget_seconds=budget_seconds)
    return Retention(stage.database.retention, ManualClock(), stage.metrics, config)


def old_id(number: int) -> UUID:
    """Return an id as it was made in 2022."""
    return UUID(f"01800000-0000-7000-8000-{number:012x}")


async def number_of(url: str, table: str, condition: str = "true") -> object:
    return (await run_sql(url, f"select count(*) from {table} where {condition}"))[0][0]


async def store_old_run(stage: Stage, url: str, number: int, *, finished_hours_ago: int | None = 25) -> RunId:
    """Store a run made long ago, with two events."""
    await store_old_runs(stage, url, [number], finished_hours_ago=finished_hours_ago)
    return RunId(old_id(number))


async def store_old_runs(
    stage: Stage, url: str, numbers: Iterable[int], *, finished_hours_ago: int | None = 25
) -> None:
    """Store runs made long ago, each with two events."""
    run_ids = [old_id(number) for number in numbers]
    await run_sql(
        url,
        "insert into runs (id, session_id, owner_id, agent, status, input, source, finished_at) "
        "select unnest($1::uuid[]), $2, $3, 'assistant', $4, $6, 'api', now() - make_interval(hours => $5)",
        run_ids,
        stage.session.id,
        stage.owner_id,
        RunStatus.QUEUED.value if finished_hours_ago is None else RunStatus.SUCCEEDED.value,
        finished_hours_ago,
        '{"content": "long ago", "metadata": {}}',
    )
    await store_events(url, *run_ids)


async def store_events(url: str, *run_ids: UUID) -> None:
    await run_sql(
        url,
        "insert into run_events (run_id, seq, type, data) select run_id, seq, type, '{}' "
        "from unnest($1::uuid[]) run_id, (values (1, 'run.started'), (2, 'reset')) as e (seq, type)",
        run_ids,
    )


async def store_old_segment(stage: Stage, url: str, number: int) -> UUID:
    segment_id = old_id(number)
    await run_sql(
        url,
        "insert into summaries (id, session_id, from_position, through_position, through_id, text, token_count, model, "
        "prompt_version, read_hash, input_tokens, output_tokens, duration_seconds) "
        "select $1, $2, 1, 2, m.id, 'old', 1, 'm', '2', gen_random_uuid()::text, 1, 1, 1 from messages m "
        "where m.session_id = $2 and m.position = 2",
        segment_id,
        stage.session.id,
    )
    return segment_id


async def let_rest(url: str) -> None:
    await run_sql(url, "update sessions set updated_at = now() - interval '31 days'")


async def test_events_of_runs_that_ended_long_ago_go_and_those_of_others_stay(stage: Stage, database_url: str) -> None:
    kept = {
        (await stage.turn("hello")).id,
        await store_old_run(stage, database_url, 2, finished_hours_ago=23),
        await store_old_run(stage, database_url, 3, finished_hours_ago=None),
    }
    ended = await store_old_run(stage, database_url, 1)

    await retention_of(stage).run()
    await retention_of(stage).run()

    left = {run_id for (run_id,) in await run_sql(database_url, "select distinct run_id from run_events")}
    assert left == kept
    assert ended not in left


async def test_a_reader_of_a_run_whose_events_went_is_shown_its_end_behind_a_reset(
    stage: Stage, database_url: str
) -> None:
    run = await stage.database.runs.get_run(stage.owner_id, await store_old_run(stage, database_url, 1))
    reading = Following(stage.database.followed_runs, time.monotonic).events(run, after=1)
    await retention_of(stage).run()

    told = [
        event.type.value for item in [item async for item in reading] if not isinstance(item, Idle) for event in item
    ]

    assert (told[0], told[-1]) == ("reset", "run.completed")


async def test_events_of_erased_runs_go_too(stage: Stage, database_url: str) -> None:
    await store_events(database_url, old_id(7))

    await retention_of(stage).run()

    assert await number_of(database_url, "run_events") == 0


async def test_more_than_a_batch_goes_in_several_and_messages_and_runs_stay(stage: Stage, database_url: str) -> None:
    await fill(stage, 3)
    await store_old_runs(stage, database_url, range(RUNS_AT_ONCE + 3))
    before = await stage.messages()

    await retention_of(stage).run()

    deleted = [report["count"] for report in stage.metrics.of("retention_deleted") if report["kind"] == "run_events"]
    assert deleted == [RUNS_AT_ONCE, 3]
    assert await stage.messages() == before
    assert await number_of(database_url, "runs", "id < '01810000-0000-7000-8000-000000000000'") == RUNS_AT_ONCE + 3


async def test_two_at_once_delete_the_same_and_fail_nobody(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(20))

    await asyncio.gather(*(retention_of(stage).run() for _ in range(3)))

    assert await number_of(database_url, "run_events") == 0


async def test_what_the_time_does_not_suffice_for_is_told_and_goes_at_the_next(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(RUNS_AT_ONCE + 3))

    await retention_of(stage, ONE_ROUND).run()
    left = await number_of(database_url, "run_events")
    told = stage.metrics.of("retention_out_of_time")
    await retention_of(stage, ONE_ROUND).run()

    assert left == 3 * 2
    assert told == [{"kind": "run_events"}]
    assert await number_of(database_url, "run_events") == 0
    assert stage.metrics.of("retention_out_of_time") == told


class OneKindFails(RetentionRepository):
    """Old rows of which one kind takes too long."""

    def __init__(self, real: RetentionRepository) -> None:
        self._real, self.kept_hours, self.partitions = real, {}, real.partitions

    async def delete(self, kind: str, hours: int, after: UUID) -> BatchResult:
        if kind == "job_log":
            raise DatabaseUnavailable("canceling statement due to statement timeout")
        return await self._real.delete(kind, hours, after)


async def test_a_kind_that_fails_stops_no_other(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(RUNS_AT_ONCE + 3))
    failing = OneKindFails(stage.database.retention)

    await Retention(failing, ManualClock(), stage.metrics, RetentionConfig()).run()

    assert await number_of(database_url, "run_events") == 0
    assert stage.metrics.of("retention_failed") == [{"kind": "job_log"}]


async def test_a_run_that_somebody_holds_keeps_all_its_events_and_stops_nothing_behind_it(
    stage: Stage, database_url: str
) -> None:
    held = await store_old_run(stage, database_url, 0)
    await store_old_runs(stage, database_url, range(1, RUNS_AT_ONCE + 3))

    async with hold_rows(database_url, f"select from runs where id = '{held}' for update"):
        await retention_of(stage).run()
    left = await run_sql(database_url, "select run_id, seq from run_events order by seq")
    await retention_of(stage).run()

    assert left == [(held, 1), (held, 2)]
    assert await number_of(database_url, "run_events") == 0


async def test_a_batch_of_runs_that_still_wait_is_walked_past(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(RUNS_AT_ONCE), finished_hours_ago=None)
    await store_old_run(stage, database_url, RUNS_AT_ONCE)

    await retention_of(stage).run()

    assert await number_of(database_url, "run_events") == RUNS_AT_ONCE * 2


async def test_erasing_takes_a_run_before_its_events_and_never_deadlocks_with_retention(
    stage: Stage, database_url: str
) -> None:
    run_id = await store_old_run(stage, database_url, 1)

    async with hold_rows(database_url, f"select from runs where id = '{run_id}' for update"):
        erasing = asyncio.create_task(stage.database.sessions.delete(stage.owner_id, stage.session.id))
        await until_sql(database_url, f"select from {BACKENDS} where wait_event_type = 'Lock'")
        free = await number_of(database_url, "(select from run_events for update nowait) e")
    await erasing

    assert free == 2
    assert await number_of(database_url, "run_events") == 0


async def test_segments_that_are_in_no_summary_go_once_their_session_is_at_rest(
    stage: Stage, database_url: str
) -> None:
    await fill(stage, 6)
    await compact_now(stage)
    used = await number_of(database_url, "summaries")
    for number in range(3):
        await store_old_segment(stage, database_url, number)
    retention = retention_of(stage)

    await retention.run_daily()
    while_busy = await number_of(database_url, "summaries")
    await let_rest(database_url)
    await retention.run_daily()

    assert used == 1
    assert while_busy == 4
    assert await number_of(database_url, "summaries") == used


async def test_an_old_segment_that_a_version_names_stays(stage: Stage, database_url: str) -> None:
    await fill(stage, 2)
    segment = await store_old_segment(stage, database_url, 1)
    await run_sql(
        database_url,
        "insert into summary_versions (id, session_id, version, state, segment_ids, text, token_count, through_id, "
        "through_position, model) select $1, $2, 1, 'superseded', array[t.id], 'old', 1, t.through_id, 2, 'm' "
        "from summaries t where t.id = $1",
        segment,
        stage.session.id,
    )
    await let_rest(database_url)

    await retention_of(stage).run_daily()

    assert await number_of(database_url, "summaries") == 1


async def test_prepared_summaries_of_an_older_version_go_and_the_usable_one_stays(
    stage: Stage, database_url: str
) -> None:
    await fill(stage, 6)
    assert await prepare_one(stage)
    await retention_of(stage).run_daily()
    usable = await number_of(database_url, "summary_versions")
    await run_sql(database_url, "update sessions set summary_version = summary_version + 1")

    await retention_of(stage).run_daily()

    assert usable == 1
    assert await number_of(database_url, "summary_versions") == 0


async def test_access_tokens_go_an_hour_after_they_expired(stage: Stage, database_url: str) -> None:
    key = await stage.database.keys.create(NewKey("anna", "", frozenset({Scope.READ})))
    for minutes in (-10, 50, 70):
        new = NewToken(key.id, stage.owner_id, frozenset({Scope.READ}), None, -60 * minutes)
        await stage.database.access_tokens.create(new)

    await retention_of(stage).run()

    assert await number_of(database_url, "access_tokens") == 2


async def test_records_of_old_jobs_go_and_jobs_that_nobody_does(stage: Stage, database_url: str) -> None:
    for age in (1, 73):
        job = "insert into jobs (kind, subject, created_at) values ('unknown', $1, now() - make_interval(hours => $2))"
        record = (
            "insert into failed_jobs (kind, subject, failed_at) values ('x', '1', now() - make_interval(hours => $1))"
        )
        await run_sql(database_url, job, str(age), age)
        await run_sql(database_url, record, age)

    await retention_of(stage).run()

    assert (await number_of(database_url, "jobs"), await number_of(database_url, "failed_jobs")) == (1, 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_jobs_that_waited_long_for_a_worker_still_wait(stage: Stage, database_url: str, kind: str) -> None:
    await stage.database.jobs.enqueue(Job(kind, "1"))
    await run_sql(database_url, "update jobs set created_at = now() - interval '9 days'")

    await retention_of(stage).run()

    assert await number_of(database_url, "jobs") == 1


async def test_tables_that_change_all_the_time_are_vacuumed_by_small_shares(database_url: str) -> None:
    rows = await run_sql(
        database_url,
        "select c.oid::regclass::text, o.option_name, o.option_value::float from pg_class c "
        "cross join pg_options_to_table(c.reloptions) o where o.option_name = 'autovacuum_vacuum_scale_factor'",
    )
    of_events = "select inhrelid from pg_inherits where inhparent = 'run_events'::regclass"
    partitions = await run_sql(database_url, f"select inhrelid::regclass::text from ({of_events}) of_events")
    toasts = await run_sql(
        database_url,
        "select c.reltoastrelid::regclass::text from pg_class c "
        f"where c.relname = 'summary_versions' or c.oid in ({of_events})",
    )

    shares = {str(table): share for table, _, share in rows}
    busy = {"runs", "sessions", "jobs", *(str(table) for (table,) in (*partitions, *toasts))}
    busy |= {"summary_versions", "search_terms", "slack_events", "slack_parts", "slack_conversations"}
    assert busy <= shares.keys()
    assert all(isinstance(share, float) and share <= 0.02 for share in shares.values())


CALL = ToolCall(id="c1", name="calculator", arguments='{"expression": "6*7"}')
RESULT = NewMessage(
    role=Role.TOOL,
    content="a result of its own",
    source=Source.API,
    tool_call_id="c1",
    name="calculator",
    metadata={"is_error": True},
)
STAGE = CompactionFinished(
    cause="threshold",
    outcome=CompactionOutcome.ADOPTED,
    detail="",
    fired=("pruned", "summarised"),
    tokens_before=900,
    tokens_after=300,
    through_position=7,
)


async def store(conversation: Conversation, claimed: ClaimedRun, events: Sequence[Event]) -> None:
    numbered = [NewEvent(number, event) for number, event in enumerate(events, start=1)]
    await conversation.database.events.append_events(claimed.lease, numbered)


async def read(conversation: Conversation, claimed: ClaimedRun) -> list[Event]:
    return [stored.event for stored in await conversation.database.events.read_events(claimed.run.id, 0)]


async def take_step(conversation: Conversation, claimed: ClaimedRun) -> tuple[Message, Message]:
    """Store the user's message, a step with one call, and its result; return step and result."""
    append = conversation.database.messages.append_message
    await append(claimed.lease, "user", user_message("what is 6*7?", id=claimed.run.user_message_id))
    step = await append(claimed.lease, "assistant:0", answer_message("a step of its own", tool_calls=(CALL,)))
    return step, await append(claimed.lease, "tool:0:0", RESULT)


async def test_every_kind_of_event_is_read_as_it_was_written(conversation: Conversation) -> None:
    claimed = await conversation.start()
    step, result = await take_step(conversation, claimed)
    told: list[Event] = [
        AnswerReset(2),
        RunStarted(claimed.run),
        CompactionStarted("threshold", 900),
        STAGE,
        MessageDelta(MESSAGE_ID, 'é\u2028\\"'),
        ReasoningDelta(MESSAGE_ID, "hm"),
        ToolCallDelta(MESSAGE_ID, 1, "c1", "calculator", '{"expr'),
        MessageCompleted(step),
        ToolCalled(CALL, step.id),
        ToolAnswered(result),
    ]
    await store(conversation, claimed, told)
    assert await read(conversation, claimed) == told

    outcome = Outcome(RunStatus.SUCCEEDED, answer_message("42"), context={"total_tokens": 7})
    run = await conversation.database.runs.finish(claimed.lease, outcome, (), len(told) + 1)

    answer = (await conversation.messages())[-1]
    assert await read(conversation, claimed) == [*told, MessageCompleted(answer), RunEnded(run, answer)]


async def test_no_stored_event_repeats_a_message(conversation: Conversation, database_url: str) -> None:
    claimed = await conversation.start()
    step, result = await take_step(conversation, claimed)
    await store(conversation, claimed, [RunStarted(claimed.run), MessageCompleted(step), ToolAnswered(result)])
    await conversation.database.runs.finish(
        claimed.lease, Outcome(RunStatus.SUCCEEDED, answer_message("an answer of its own")), (), 4
    )

    stored = await run_sql(database_url, "select data::text from run_events")

    assert len(stored) == 5
    assert not [row for row in stored if "of its own" in str(row[0])]


async def test_an_outcome_that_only_a_newer_version_knows_is_left_out(
    conversation: Conversation, database_url: str
) -> None:
    claimed = await conversation.start()
    await store(conversation, claimed, [STAGE, MessageDelta(MESSAGE_ID, "and on")])
    later = "cast(replace(cast(data as text), 'adopted', 'later') as json)"
    await run_sql(database_url, f"update run_events set data = {later} where type = '{STAGE.type}'")

    assert await read(conversation, claimed) == [MessageDelta(MESSAGE_ID, "and on")]


async def test_parts_that_an_earlier_version_stored_without_an_id_are_left_out(
    conversation: Conversation, database_url: str
) -> None:
    claimed = await conversation.start()
    parts: list[Event] = [MessageDelta(MESSAGE_ID, "a"), ReasoningDelta(MESSAGE_ID, "b"), ToolCalled(CALL, MESSAGE_ID)]
    await store(conversation, claimed, [*parts, AnswerReset(2)])
    await run_sql(database_url, "update run_events set data = cast(cast(data as jsonb) - 'message_id' as json)")

    assert await read(conversation, claimed) == [AnswerReset(2)]


async def test_a_start_is_shown_as_it_was_and_not_as_the_run_stands_now(conversation: Conversation) -> None:
    claimed = await conversation.start()
    await store(conversation, claimed, [RunStarted(claimed.run)])

    await conversation.end(claimed.lease, "over")

    first = (await read(conversation, claimed))[0]
    assert first == RunStarted(claimed.run)


def test_an_event_of_a_type_that_only_a_newer_version_knows_is_left_out() -> None:
    assert event_from({"type": "run.paused", "data": {"why": "approval"}}) is None


async def test_a_batch_is_deleted_without_reading_the_whole_table(database_url: str) -> None:
    batch = delete_batch("expiring", "created_at < {before}", key="team, number")
    async with connected(database_url, plan_cache_mode="force_generic_plan") as connection:
        await connection.execute("""
            create temporary table expiring (team text, number int, created_at timestamptz, primary key (team, number))
                with (fillfactor = 10);
            insert into expiring select 'T', i, now() - make_interval(secs => i) from generate_series(1, 100000) i;
            create index on expiring (created_at);
            analyze expiring;
        """)
        await connection.execute(f"prepare batch (int, int) as {batch.text}")
        found = await connection.fetchval("explain (format json) execute batch (1, 500)")

    scans = [str(node["Node Type"]) for node in nodes_of(json.loads(found)[0]["Plan"]) if node.get("Relation Name")]
    assert scans
    assert "Seq Scan" not in scans
