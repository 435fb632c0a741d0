"""How PostgreSQL runs the ranking query over many sessions, whatever its statistics say."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from fakes.conversations import open_conversation
from fakes.pooler import shared_address
from fakes.raw_sql import run_sql
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.statement import Row, Statement
from throughline.db.connection.transactions import Transactions
from throughline.db.database import Database
from throughline.db.search.repository import SearchRepository
from throughline.domain.json_types import JsonObject
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


class ExplainedTransactions(Transactions):
    """Notes the plan of the ranking query as it was run."""

    plan: JsonObject

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        if "ranked as" in statement.text:
            explained = replace(statement, text=f"explain (analyze, format json) {statement.text}")
            (row,) = await super().fetch(explained, **parameters)
            plan = row["QUERY PLAN"]
            self.plan = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
        return await super().fetch(statement, **parameters)


def nodes_of(plan: JsonObject) -> Iterator[JsonObject]:
    yield plan
    children = plan.get("Plans", [])
    assert isinstance(children, list)
    for child in children:
        assert isinstance(child, dict)
        yield from nodes_of(child)


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
    transactions = ExplainedTransactions(pool)
    history = SearchRepository(transactions, database.messages, "english")

    await history.search(conversation.owner_id, None, HistoryQuery("where does the kestrel hover"))
    await pool.close()

    nodes = list(nodes_of(transactions.plan))
    assert {node["Actual Loops"] for node in nodes if node["Node Type"] == "Aggregate"} == {1}
    assert [node["Node Type"] for node in nodes if node.get("Relation Name") == "search_terms"] == ["Index Scan"]
