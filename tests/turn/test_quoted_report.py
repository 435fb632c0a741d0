"""What a context report on request tells of the quotations in the session's last turn."""

from contextlib import AbstractAsyncContextManager

import pytest

from fakes.pooler import shared_address
from fakes.query_plans import ExplainedTransactions, nodes_of
from fakes.raw_sql import run_sql
from fakes.recalling import QUESTION, open_recalling, quoted
from fakes.stage import Stage, open_stage
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.database import Database
from throughline.db.runs.events import EventRepository
from throughline.domain.basic_types import UserId
from throughline.domain.events import HistoryQuoted
from throughline.turn.context_requests import ContextRequests

ANSWERED = """
    with told as (
        insert into messages (id, session_id, position, role, content, source, run_id)
        select gen_random_uuid(), s.id, m, 'assistant', 'Here.', 'api', r.id
        from sessions s join runs r on r.session_id = s.id, generate_series(s.message_count + 1, s.message_count + 20) m
    )
    insert into run_events (run_id, seq, type, data)
    select r.id, n, 'message.delta', '{"text": "a"}' from runs r, generate_series(100, 5000) n
"""
MORE_EVENTS = """
    insert into run_events (run_id, seq, type, data)
    select run.id, n, 'message.delta', '{"text": "a"}'
    from (select gen_random_uuid() as id from generate_series(1, 50)) run, generate_series(1, 200) n
"""


async def told(stage: Stage) -> HistoryQuoted | None:
    database = stage.database
    requests = ContextRequests(stage.dependencies, database.sessions, database.pins, unused)
    return (await requests.report_with_quotations(stage.owner_id, stage.session.id)).quoted


def unused(owner_id: UserId) -> AbstractAsyncContextManager[None]:
    raise AssertionError(owner_id)


async def test_the_report_tells_what_the_last_turn_quoted(database: Database, database_url: str) -> None:
    stage = await open_recalling(database, database_url)
    before = await told(stage)

    (event,) = await quoted(stage, QUESTION)

    assert before is None
    assert await told(stage) == event


async def test_after_a_turn_without_quotations_the_report_tells_of_none(database: Database, database_url: str) -> None:
    stage = await open_recalling(database, database_url)
    for text in (QUESTION, "Thank you, that helped."):
        await quoted(stage, text)

    assert await told(stage) is None


async def test_a_waiting_message_does_not_hide_what_the_turn_before_it_quoted(
    database: Database, database_url: str
) -> None:
    stage = await open_recalling(database, database_url)
    (event,) = await quoted(stage, QUESTION)

    await stage.submit("And the harbour's?")

    assert await told(stage) == event


async def test_of_several_attempts_the_last_ones_quotations_are_told(database: Database, database_url: str) -> None:
    stage = await open_recalling(database, database_url)
    await quoted(stage, QUESTION)
    later = "insert into run_events (run_id, seq, type, data) select id, 999, 'context.history.quoted', $1 from runs"
    await run_sql(database_url, later, '{"positions": [3], "scores": [0.5], "tokens": 7}')

    report = await told(stage)

    assert report is not None
    assert (list(report.positions), list(report.scores), report.tokens) == ([3], [0.5], 7)


async def test_once_the_events_are_deleted_the_report_tells_of_none(database: Database, database_url: str) -> None:
    stage = await open_recalling(database, database_url)
    await quoted(stage, QUESTION)

    await run_sql(database_url, "delete from run_events")

    assert await told(stage) is None


async def test_quotations_of_other_sessions_are_not_told(database: Database, database_url: str) -> None:
    await quoted(await open_recalling(database, database_url), QUESTION)
    other = await open_stage(database)

    assert await told(other) is None


async def test_the_stored_report_of_a_turn_says_nothing_of_quotations(database: Database, database_url: str) -> None:
    stage = await open_recalling(database, database_url)
    await quoted(stage, QUESTION)

    ((context,),) = await run_sql(database_url, "select cast(context as text) from runs")

    assert "total_tokens" in str(context)
    assert "quoted" not in str(context)


@pytest.mark.parametrize("statistics", ["select 1", "analyze"])
async def test_the_statement_reads_one_message_and_the_events_of_its_run_by_index(
    database: Database, database_url: str, statistics: str
) -> None:
    stage = await open_recalling(database, database_url)
    (event,) = await quoted(stage, QUESTION)
    for statement in (ANSWERED, MORE_EVENTS, statistics):
        await run_sql(database_url, statement)
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    transactions = ExplainedTransactions(pool, "run_events")

    found = await EventRepository(transactions, database.notifier).newest_quoted(stage.session.id)
    await pool.close()

    reads = {node["Relation Name"]: node for node in nodes_of(transactions.plan) if "Relation Name" in node}
    assert found == event
    assert (reads["messages"]["Node Type"], reads["messages"]["Actual Rows"]) == ("Index Scan", 1)
    assert reads["run_events"]["Node Type"] in {"Index Scan", "Bitmap Heap Scan"}
