"""A summary's transaction that is run again, because the answer to its commit was lost, finds its own work."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

import pytest

from fakes.conversations import Conversation, adoption_of, open_conversation
from fakes.pooler import shared_address
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database
from throughline.db.summaries.repository import SummaryRepository
from throughline.domain.errors import LeaseLost, SummaryConflict
from throughline.domain.message import Message
from throughline.domain.session import Session

T = TypeVar("T")


class ForgetfulTransactions(Transactions):
    """Commits each intent and runs it once more, as after an answer that was lost on its way."""

    async def run(self, intent: Callable[[Statements], Awaitable[T]]) -> T:
        await super().run(intent)
        return await super().run(intent)


@pytest.fixture
async def summaries(database_url: str) -> AsyncGenerator[SummaryRepository]:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=2, timeout_seconds=5))
    yield SummaryRepository(ForgetfulTransactions(pool))
    await pool.close()


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


@pytest.fixture
async def stored(conversation: Conversation) -> list[Message]:
    return await conversation.say(*"abcd")


async def _check(conversation: Conversation, session: Session, versions: list[int | None]) -> None:
    assert session == await conversation.reload()
    listed = (await conversation.database.summaries.list(conversation.owner_id, session.id)).items
    assert [version.version for version in listed] == versions


async def test_adopting_again_changes_nothing(
    conversation: Conversation, stored: list[Message], summaries: SummaryRepository
) -> None:
    adoption = await conversation.adoption(stored[0])

    session = await summaries.adopt_summary(adoption)

    await _check(conversation, session, [1])
    with pytest.raises(SummaryConflict):
        await summaries.adopt_summary(adoption)


async def test_preparing_again_and_adopting_that_again_changes_nothing(
    conversation: Conversation, stored: list[Message], summaries: SummaryRepository
) -> None:
    segment = await conversation.segment(stored[1])

    prepared = await summaries.prepare_summary(adoption_of(0, stored[1], segment))
    session = await summaries.adopt_prepared(conversation.session.id, prepared.id, 0)

    await _check(conversation, session, [1])
    with pytest.raises(SummaryConflict):
        await conversation.database.summaries.adopt_prepared(session.id, prepared.id, 0)


async def test_restoring_again_changes_nothing(
    conversation: Conversation, stored: list[Message], summaries: SummaryRepository
) -> None:
    await conversation.adopt(stored[0], "first")
    first = await summaries.latest(conversation.session.id)
    await conversation.adopt(stored[1], "second")
    assert first is not None

    session = await summaries.restore(conversation.owner_id, conversation.session.id, first.id)

    assert session.conversation_summary == "first"
    await _check(conversation, session, [3, 2, 1])


async def test_a_lost_lease_is_told_the_second_time_too(
    conversation: Conversation, stored: list[Message], summaries: SummaryRepository
) -> None:
    adoption = await conversation.adoption(stored[0])
    lease = (await conversation.start()).lease
    await conversation.end(lease)

    with pytest.raises(LeaseLost):
        await summaries.adopt_summary(adoption, lease)

    assert (await conversation.reload()).summary_version == 0
