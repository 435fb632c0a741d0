"""What a search does about messages that are not indexed yet: how much it reads again, what it keeps, and what it says.

A message here is longer than all that a search takes without keeping it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import TypeVar
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from fakes.conversations import Conversation, open_conversation
from fakes.pooler import shared_address
from fakes.raw_sql import run_sql
from throughline.db.connection.address import parse_address
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.search import repository
from throughline.db.search.analyzer import Analyzer, Term
from throughline.db.search.entries import IndexedMessage, live_entries_of
from throughline.db.search.index_history import (
    BLOCK_CHARACTERS,
    LIVE_CHARACTERS,
    WRITTEN_TERMS,
    HistoryIndex,
    UnindexedSession,
)
from throughline.db.search.repository import ROUND_SECONDS, CatchUp, SearchRepository
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import DatabaseBusy
from throughline.domain.recall import HistoryQuery

T = TypeVar("T")
LONG = "filler " * (LIVE_CHARACTERS // len("filler ") + 1)
PER_BLOCK = BLOCK_CHARACTERS // len(LONG)
QUEUED = "select kind, subject from jobs"
BLOCKS = "select through_position from search_blocks order by through_position"


def numbered(messages: int) -> list[str]:
    return [f"lantern{number} {LONG}" for number in range(1, messages + 1)]


def out_of_time() -> Callable[[], float]:
    """Return a clock by which a search's time is over after one block."""
    return count(0.0, repository.CATCH_UP_SECONDS).__next__


class WatchedAnalyzer(Analyzer):
    """Notes which long texts were cut into terms, by their first word."""

    def __init__(self) -> None:
        super().__init__("english")
        self.cut: list[str] = []

    def terms(self, text: str) -> Iterator[Term]:
        if len(text) > LIVE_CHARACTERS:
            self.cut.append(text.split(maxsplit=1)[0])
        return super().terms(text)


@pytest.fixture
async def index(database_url: str) -> AsyncIterator[HistoryIndex]:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(2, 5.0))
    yield HistoryIndex(Transactions(pool), WatchedAnalyzer())
    await pool.close()


def cut_by(index: HistoryIndex) -> list[str]:
    assert isinstance(index.analyzer, WatchedAnalyzer)
    return index.analyzer.cut


async def test_a_search_indexes_long_messages_for_a_bounded_time(
    conversation: Conversation, index: HistoryIndex, database_url: str
) -> None:
    await conversation.say(*numbered(PER_BLOCK + 1))
    catch_up = CatchUp(index, out_of_time())

    live, left = await catch_up.catch_up(conversation.owner_id, None)
    indexed = await run_sql(database_url, BLOCKS)
    again = await catch_up.catch_up(conversation.owner_id, None)

    assert (live, left) == ((), (UnindexedSession(conversation.session.id, 1),))
    assert indexed == [(PER_BLOCK,)]
    assert again == ((), ())
    assert cut_by(index) == [f"lantern{number}" for number in range(1, PER_BLOCK + 2)]


async def test_an_incomplete_search_names_the_sessions_and_has_them_indexed(
    conversation: Conversation, database_url: str
) -> None:
    await conversation.say(*numbered(PER_BLOCK + 1))
    pool = ConnectionPool(shared_address(database_url), PoolConfig(2, 5.0))
    history = SearchRepository(
        Transactions(pool), conversation.database.messages, conversation.database.jobs, "english", out_of_time()
    )

    first = await history.search(conversation.owner_id, None, HistoryQuery("lantern1"))
    queued = await run_sql(database_url, QUEUED)
    second = await history.search(conversation.owner_id, None, HistoryQuery("lantern1"))
    await pool.close()

    assert first.incomplete_sessions == (conversation.session.id,)
    assert queued == [("index_owner", str(conversation.owner_id))]
    assert second.incomplete_sessions == ()


async def test_searches_of_one_owner_at_once_index_every_message_once(
    conversation: Conversation, index: HistoryIndex
) -> None:
    await conversation.say(*numbered(PER_BLOCK + 1))
    catch_up = CatchUp(index, time.monotonic)

    await asyncio.gather(*(catch_up.catch_up(conversation.owner_id, None) for _ in range(3)))

    assert sorted(cut_by(index)) == sorted(f"lantern{number}" for number in range(1, PER_BLOCK + 2))


class BusyTransactions(Transactions):
    """Fails to write: the rows stay locked for too long."""

    async def run(self, intent: Callable[[Statements], Awaitable[T]]) -> T:  # noqa: ARG002  # it is never begun
        raise DatabaseBusy("The database waited too long for a lock.")


async def test_a_search_that_cannot_write_the_index_answers_without(
    conversation: Conversation, database_url: str
) -> None:
    await conversation.say(*numbered(1))
    pool = ConnectionPool(parse_address(database_url), PoolConfig(2, 5.0))
    history = SearchRepository(
        BusyTransactions(pool), conversation.database.messages, conversation.database.jobs, "english", time.monotonic
    )

    with capture_logs() as logs:
        found = await history.search(conversation.owner_id, None, HistoryQuery("lantern1"))
    await pool.close()

    assert found.incomplete_sessions == (conversation.session.id,)
    assert ("search indexing failed", "The database waited too long for a lock.") in [
        (entry["event"], entry.get("cause")) for entry in logs
    ]


async def test_short_sessions_are_taken_as_they_are_beside_a_long_one(
    conversation: Conversation, index: HistoryIndex
) -> None:
    await conversation.say(*numbered(PER_BLOCK * 2))
    other = await open_conversation(conversation.database)
    await other.say("A short one.", "And another.")

    live, left = await CatchUp(index, out_of_time()).catch_up(conversation.owner_id, None)

    assert [(message.session_id, message.position) for message in live] == [
        (other.session.id, 1),
        (other.session.id, 2),
    ]
    assert [found.session_id for found in left] == [conversation.session.id]


async def test_the_job_indexes_short_sessions_before_a_long_one(
    conversation: Conversation, index: HistoryIndex, database_url: str
) -> None:
    await conversation.say(*numbered(PER_BLOCK * 2))
    other = await open_conversation(conversation.database)
    await other.say("A short one.")
    await run_sql(database_url, "update sessions set updated_at = now() - interval '1 hour'")
    catch_up = CatchUp(index, count(0.0, ROUND_SECONDS / 2).__next__)

    messages, is_more_due = await catch_up.index_owner(conversation.owner_id)

    assert (messages, is_more_due) == (1 + PER_BLOCK, True)
    assert await run_sql(
        database_url, "select through_position from search_blocks where session_id = $1", other.session.id
    ) == [(1,)]


async def test_a_long_message_is_found_by_its_first_and_last_word(
    conversation: Conversation, database_url: str
) -> None:
    words = [f"{number:012}" for number in range(WRITTEN_TERMS + 1)]
    await conversation.say(" ".join(words), "Unrelated.")
    history = conversation.database.history

    found = [await history.search(conversation.owner_id, None, HistoryQuery(word)) for word in (words[0], words[-1])]

    assert [one.hits[0].message.position for one in found] == [1, 1]
    assert await run_sql(database_url, BLOCKS) == [(2,)]


def test_of_messages_taken_as_they_are_only_the_wanted_terms_are_kept() -> None:
    message = IndexedMessage(SessionId(uuid4()), 1, "The red vault is open.", "Anna", datetime.now(UTC))

    live = live_entries_of(Analyzer("english"), (message,), {"vault", "@anna", "absent"})

    assert {entry.term for entry in live.items} == {"vault", "@anna"}
    assert (live.message_count, live.term_count) == (1, 3)
