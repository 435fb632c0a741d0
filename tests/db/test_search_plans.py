"""Plans of the search's statements: how many scans of the index of messages they need."""

from datetime import UTC, datetime

import pytest

from benchmarks.figures import connected
from benchmarks.retrieval_data import Archive, Line
from fakes.pooler import shared_address
from fakes.raw_sql import ExplainedTransactions, nodes_of
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.database import Database
from throughline.db.search.repository import SearchRepository
from throughline.domain.recall import HistoryQuery


def line(text: str) -> Line:
    return Line("Ana", text, datetime(2023, 5, 8, 14, 0, tzinfo=UTC))


@pytest.mark.parametrize(("text", "words"), [("harbour", "weighed"), ("role:user harbour", "as place from")])
async def test_candidates_of_a_session_are_read_by_one_scan(
    database: Database, database_url: str, text: str, words: str
) -> None:
    async with connected(database_url) as connection:
        archive = Archive(database, connection, await database.users.get_or_create("plans"))
        await archive.fill_session([line("Nothing happened.")] * 12_000)  # so that an index is worth while
        session_id = await archive.fill_session([line(f"The harbour, {number}.") for number in range(50)])
        await archive.index(session_id)
        await archive.vacuum()
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    transactions = ExplainedTransactions(pool, words)
    history = SearchRepository(transactions, database.messages, database.jobs, "english")

    hits = await history.search(archive.owner_id, session_id, HistoryQuery(text, 40))
    await pool.close()

    scans = [node for node in nodes_of(transactions.plan) if node.get("Relation Name") == "messages"]
    assert len(hits.hits) == 40
    assert {node["Node Type"] for node in scans} <= {"Index Scan", "Bitmap Heap Scan"}
    assert {node["Actual Loops"] for node in scans} <= {0, 1}, "a scan for each message reads the whole index each time"
