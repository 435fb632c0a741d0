"""The list of a session's runs: read by its index, and bounded in bytes."""

import pytest

from fakes.conversations import Conversation, open_conversation
from fakes.pooler import shared_address
from fakes.query_plans import ExplainedTransactions, nodes_of
from fakes.raw_sql import run_sql
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.database import Database
from throughline.db.runs import list_runs
from throughline.db.runs.list_runs import RunQuery
from throughline.domain.run import RunStatus

FILL = """
    insert into runs (id, session_id, owner_id, agent, input, source, status)
    select gen_random_uuid(), $1, $2, 'assistant', '{"content": "x", "metadata": {}}', 'api',
        case when n % 500 = 0 then 'failed' else 'succeeded' end
    from generate_series(1, 5000) n
"""


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


@pytest.mark.parametrize("status", [None, RunStatus.FAILED])
async def test_a_page_reads_no_rows_but_its_own(
    conversation: Conversation, database_url: str, status: RunStatus | None
) -> None:
    await run_sql(database_url, FILL, conversation.session.id, conversation.owner_id)
    await run_sql(database_url, "analyze runs")
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    transactions = ExplainedTransactions(pool, "with asked as")

    page = await list_runs.list_runs(
        transactions, conversation.owner_id, conversation.session.id, RunQuery(limit=5, status=status)
    )
    await pool.close()

    assert len(page.items) == 5
    (scan,) = [node for node in nodes_of(transactions.plan) if node.get("Index Name") == "runs_of_session"]
    assert scan["Actual Rows"] == 6
    assert not scan.get("Rows Removed by Filter")


async def test_a_page_of_large_runs_is_shorter_and_the_next_goes_on(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_runs, "PAGE_BYTES", 1_500)
    runs = [(await conversation.submit("x" * 1_000)).run.id for _ in range(5)]

    found, query = [], RunQuery()
    while True:
        page = await conversation.database.runs.list_runs(conversation.owner_id, conversation.session.id, query)
        assert 1 <= len(page.items) <= 2
        found += [run.id for run in page.items]
        if page.next_cursor is None:
            break
        query = RunQuery(cursor=found[-1])

    assert found == runs[::-1]
