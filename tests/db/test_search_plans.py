"""Plans of the search's statements: how many scans of the index of messages they need."""

from datetime import UTC, datetime

import pytest

from benchmarks.figures import connected
from benchmarks.retrieval_data import Archive, Line
from fakes.pooler import shared_address
from fakes.raw_sql import ExplainedTransactions, nodes_of, plan_of, rows_read, run_sql
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.database import Database
from throughline.db.search.entries import AFTER_PAUSE
from throughline.db.search.index_history import BLOCK_MESSAGES
from throughline.db.search.rank import _READ_ENTRIES
from throughline.db.search.repository import SearchRepository
from throughline.domain.message import LAST_POSITION
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


BLOCKS = 20
PLANS = ["force_generic_plan", "force_custom_plan"]


@pytest.mark.parametrize("mode", PLANS)
async def test_a_search_reads_one_session_its_blocks_and_its_terms_once(
    database: Database, database_url: str, mode: str
) -> None:
    async with connected(database_url) as connection:
        archive = Archive(database, connection, await database.users.get_or_create("plans"))
        for number in range(40):  # most sessions have one block
            await archive.index(await archive.fill_session([line(f"The harbour, {number}.")]))
        session_id = await archive.fill_session([line(f"The harbour, {n}.") for n in range(BLOCKS * BLOCK_MESSAGES)])
        await archive.index(session_id)
        await run_sql(
            database_url,
            "insert into sessions (id, owner_id, agent, source) "
            "select gen_random_uuid(), $1, 'helper', 'api' from generate_series(1, 2000)",
            archive.owner_id,
        )
        await archive.vacuum()
        version = await connection.fetchval("select max(analyzer) from search_blocks")
        found = await connection.fetchval("select count(*) from search_blocks where session_id = $1", session_id)
    asked = {"owner_id": archive.owner_id, "session_id": session_id, "after": 0, "before": LAST_POSITION}
    wanted = {"terms": ["harbour", "1", "2"], "after_pause": AFTER_PAUSE, "version": version}
    limits = {"most_entries": 1000, "live_sessions": [], "before_run": None}

    plan = await plan_of(database_url, mode, _READ_ENTRIES, **asked, **wanted, **limits)

    assert found >= BLOCKS
    scans = [node for node in nodes_of(plan) if node.get("Relation Name") in {"search_blocks", "search_terms"}]
    assert [node["Actual Loops"] for node in scans] == [1, 1]
    assert (rows_read(plan, "sessions"), rows_read(plan, "search_terms")) == (1, found + 2)
