"""How PostgreSQL runs the ranking query over many sessions, whatever its statistics say."""

import pytest

from fakes.conversations import open_conversation
from fakes.pooler import shared_address
from fakes.query_plans import ExplainedTransactions, nodes_of
from fakes.raw_sql import run_sql
from throughline.db.connection.address import parse_address
from throughline.db.connection.pool import ConnectionPool, PoolConfig, statement
from throughline.db.connection.transactions import Transactions
from throughline.db.database import Database
from throughline.db.search.repository import SearchRepository
from throughline.domain.recall import HistoryQuery

FILL = """
    with own as (
        insert into sessions (id, owner_id, agent, source)
        select gen_random_uuid(), $1, 'assistant', 'api' from generate_series(1, 200) returning id
    )
    insert into messages (id, session_id, position, role, content, source)
    select gen_random_uuid(), own.id, p, 'user', 'The kestrel hovers over the field, message ' || p, 'api'
    from own, generate_series(1, 3) p
"""
COUNT = "update sessions s set message_count = (select count(*) from messages m where m.session_id = s.id)"


@pytest.mark.parametrize("statistics", ["", "analyze"])
async def test_a_search_of_many_sessions_reads_only_their_terms_and_ranks_once(
    database: Database, database_url: str, statistics: str
) -> None:
    conversation = await open_conversation(database)
    await run_sql(database_url, FILL, conversation.owner_id)
    await run_sql(database_url, COUNT)
    await database.history.index_owner(conversation.owner_id)
    await run_sql(database_url, statistics or "select 1")
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    transactions = ExplainedTransactions(pool, "ranked as")
    history = SearchRepository(transactions, database.messages, "english")

    await history.search(conversation.owner_id, None, HistoryQuery("where does the kestrel hover"))
    await pool.close()

    nodes = list(nodes_of(transactions.plan))
    assert {node["Actual Loops"] for node in nodes if node["Node Type"] == "Aggregate"} == {1}
    assert [node["Node Type"] for node in nodes if node.get("Relation Name") == "search_terms"] == ["Index Scan"]


@pytest.mark.parametrize(("is_one_session", "prepared"), [(True, 1), (False, 0)])
async def test_only_a_search_of_one_session_keeps_its_plan(
    database: Database, database_url: str, *, is_one_session: bool, prepared: int
) -> None:
    conversation = await open_conversation(database)
    await conversation.say("The kestrel hovers over the field.")
    pool = ConnectionPool(parse_address(database_url), PoolConfig(1, 5.0))
    transactions = Transactions(pool)
    history = SearchRepository(transactions, database.messages, "english")

    session_id = conversation.session.id if is_one_session else None
    for _ in range(2):
        found = await history.search(conversation.owner_id, session_id, HistoryQuery("where does the kestrel hover"))
        assert len(found.hits) == 1
    kept = await transactions.fetch(
        statement("select 1 from pg_prepared_statements where statement like '%ran' || 'ked as%'")
    )
    await pool.close()

    assert len(kept) == prepared
