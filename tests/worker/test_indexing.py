import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

from fakes.conversations import open_conversation
from fakes.imports import import_into
from fakes.pooler import shared_address
from fakes.raw_sql import run_sql
from fakes.side_jobs import doing, side_jobs, until_jobs
from fakes.stage import open_stage
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Transactions
from throughline.db.database import Database
from throughline.db.search.analyzer import Analyzer, Term
from throughline.db.search.entries import IndexedMessage
from throughline.db.search.index_history import LARGE_CHARACTERS, HistoryIndex
from throughline.domain.basic_types import SessionId
from throughline.domain.recall import HistoryFilter, HistoryQuery
from throughline.turn.worker.jobs import Indexing, index_owner

BLOCKS = "select from_position, through_position from search_blocks"
JOBS = "select kind, subject, owner_id from jobs"


OLD = "update sessions set updated_at = $1, unindexed_since = $1 where unindexed_since is not null"


async def minutes_pass(database_url: str) -> None:
    await run_sql(database_url, OLD, datetime.now(UTC) - timedelta(minutes=10))


async def test_the_schedule_indexes_what_no_job_was_enqueued_for(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    await import_into(stage, 2)
    other = await open_conversation(database, "bob")
    await other.say("one", "two", "three")
    await run_sql(database_url, "delete from jobs")
    await minutes_pass(database_url)

    await Indexing(database.history).run()
    async with doing(side_jobs(stage)):
        await until_jobs(database_url, [])

    assert sorted(await run_sql(database_url, BLOCKS)) == [(1, 2), (1, 3)]


async def test_the_schedule_leaves_owners_alone_whose_messages_arenew_or_indexed(
    database: Database, database_url: str
) -> None:
    indexed, new = await open_conversation(database), await open_conversation(database, "bob")
    await indexed.say("one")
    await database.history.index_session(indexed.session.id)
    await minutes_pass(database_url)
    await new.say("one")

    await Indexing(database.history).run()

    assert await run_sql(database_url, "select subject from jobs") == []


class WatchedAnalyzer(Analyzer):
    """Notes which threads cut texts into terms."""

    def __init__(self) -> None:
        super().__init__("english")
        self.threads: list[int] = []

    def terms(self, text: str) -> Iterator[Term]:
        self.threads.append(threading.get_ident())
        return super().terms(text)


def indexed(characters: int) -> IndexedMessage:
    text = ("word " * characters)[:characters]
    return IndexedMessage(SessionId(uuid4()), 1, text, author=None, created_at=datetime.now(UTC))


async def test_long_texts_are_indexed_in_a_thread(
    database_url: str,
) -> None:
    analyzer = WatchedAnalyzer()
    index = HistoryIndex(Transactions(ConnectionPool(shared_address(database_url), PoolConfig(1, 1.0))), analyzer)

    await index.live_entries([indexed(LARGE_CHARACTERS)], {"word"})
    await index.live_entries([indexed(LARGE_CHARACTERS + 1)], {"word"})

    short, long = analyzer.threads
    assert short == threading.get_ident()
    assert long != threading.get_ident()


async def test_imported_sessions_are_indexed_by_the_job_that_the_import_puts_in_line(
    database: Database, database_url: str
) -> None:
    stage = await open_stage(database)
    for _ in range(3):
        await import_into(stage, 2)

    async with doing(side_jobs(stage)):
        await until_jobs(database_url, [])

    assert await run_sql(database_url, BLOCKS) == [(1, 2)] * 3


async def test_a_session_that_is_talked_in_is_not_indexed_message_by_message(
    database: Database, database_url: str
) -> None:
    conversation = await open_conversation(database)
    await conversation.say("one", "two")

    embed_soon = AsyncMock()

    assert await index_owner(database.history, embed_soon, str(conversation.owner_id)) is None

    assert await run_sql(database_url, BLOCKS) == []
    embed_soon.assert_not_awaited()


async def test_what_was_indexed_is_embedded_soon(database: Database) -> None:
    stage, embed_soon = await open_stage(database), AsyncMock()
    await import_into(stage, 2)

    await index_owner(database.history, embed_soon, str(stage.session.owner_id))
    await index_owner(database.history, embed_soon, str(stage.session.owner_id))

    embed_soon.assert_awaited_once()


@pytest.mark.parametrize("is_prepared", [False, True])
async def test_what_a_summary_covers_is_indexed_as_soon_as_the_summary_is_adopted(
    database: Database, database_url: str, *, is_prepared: bool
) -> None:
    conversation = await open_conversation(database)
    covered, *_ = await conversation.say("The gate code is 4417.", "It rains.")
    before = await run_sql(database_url, JOBS)
    if is_prepared:
        prepared = await conversation.prepare(covered)
        await database.summaries.adopt_prepared(conversation.session.id, prepared.id, expected_version=0)
    else:
        await conversation.adopt(covered)
    asked = await run_sql(database_url, JOBS)

    async with doing(side_jobs(await open_stage(database))):
        await until_jobs(database_url, [])

    query = HistoryQuery("gate code", only=HistoryFilter(behind_cursor_of=conversation.session.id), only_indexed=True)
    found = await database.history.search(conversation.owner_id, conversation.session.id, query)
    assert (before, asked) == ([], [("index_owner", str(conversation.owner_id), conversation.owner_id)])
    assert [hit.message.position for hit in found.hits] == [1]


async def test_a_summary_of_indexed_messages_asks_for_no_index(database: Database, database_url: str) -> None:
    conversation = await open_conversation(database)
    covered, *_ = await conversation.say("one", "two")
    await database.history.index_session(conversation.session.id)

    await conversation.adopt(covered)

    assert await run_sql(database_url, JOBS) == []


async def test_messages_after_a_summary_of_indexed_ones_are_not_indexed_one_by_one(
    database: Database, database_url: str
) -> None:
    conversation = await open_conversation(database)
    covered, *_ = await conversation.say("one", "two")
    await conversation.adopt(covered)
    await database.history.index_session(conversation.session.id)
    await conversation.say("three")

    assert await index_owner(database.history, None, str(conversation.owner_id)) is None

    assert await run_sql(database_url, BLOCKS) == [(1, 2)]
