"""Erasing touches nothing of anybody else, and archived sessions still answer for what they took."""

import asyncio

import pytest

from fakes.conversations import Conversation, open_conversation
from fakes.pooler import shared_address
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database
from throughline.db.sessions.repository import SessionChange
from throughline.db.statements.sql import sql
from throughline.domain.errors import IdempotencyKeyReused, InvalidInput, NotFound
from throughline.domain.run import OnBusy


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


async def test_erasing_somebody_elses_session_waits_for_none_of_its_runs(
    conversation: Conversation, database_url: str
) -> None:
    await conversation.start()
    stranger = await conversation.database.users.get_or_create("mallory")
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=5))

    async def hold(tx: Statements) -> None:
        await tx.fetch(sql("select id from runs for update"))
        async with asyncio.timeout(1):
            with pytest.raises(NotFound):
                await conversation.database.sessions.delete(stranger, conversation.session.id)

    await Transactions(pool).run(hold)
    await pool.close()


async def test_a_repeated_message_is_answered_again_after_archiving(conversation: Conversation) -> None:
    first = await conversation.submit("Hi", key="k1", fingerprint="f")
    sessions = conversation.database.sessions
    await sessions.update(conversation.owner_id, conversation.session.id, SessionChange(archived=True))

    again = await conversation.submit("Hi", key="k1", fingerprint="f")

    assert (again.run.id, again.replayed) == (first.run.id, True)
    with pytest.raises(IdempotencyKeyReused):
        await conversation.submit("Other", key="k1", fingerprint="g")
    for on_busy in OnBusy:
        with pytest.raises(InvalidInput, match="archived"):
            await conversation.submit("Hi", key="k2", fingerprint="f", on_busy=on_busy)
