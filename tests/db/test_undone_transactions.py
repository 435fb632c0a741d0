"""Transactions that the server undoes for others are run again, as a whole and not for ever."""

from collections.abc import AsyncGenerator

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest

from fakes.conversations import Conversation
from fakes.pooler import shared_address
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import TRIES_AFTER_ROLLBACK, Statements, Transactions
from throughline.db.statements.sql import sql
from throughline.domain.errors import DatabaseUnavailable


@pytest.fixture
async def transactions(database_url: str) -> AsyncGenerator[Transactions]:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=5.0))
    yield Transactions(pool)
    await pool.close()


@pytest.mark.calm("it counts tries")
@pytest.mark.parametrize("failure", [asyncpg.SerializationError, asyncpg.DeadlockDetectedError])
async def test_a_transaction_that_the_server_undoes_often_is_stored_in_the_end(
    transactions: Transactions, conversation: Conversation, failure: type[asyncpg.PostgresError]
) -> None:
    tries: list[int] = []

    async def rename(tx: Statements) -> None:
        await tx.fetch(sql("update sessions set title = :title"), title=f"try {len(tries)}")
        tries.append(1)
        if len(tries) < TRIES_AFTER_ROLLBACK:
            raise failure("undone for another transaction")

    await transactions.run(rename)

    assert (await conversation.reload()).title == f"try {TRIES_AFTER_ROLLBACK - 1}"


async def test_a_transaction_that_the_server_always_undoes_is_given_up(transactions: Transactions) -> None:
    tries: list[int] = []

    async def fail(_tx: Statements) -> None:
        tries.append(1)
        raise asyncpg.SerializationError("undone for another transaction")

    with pytest.raises(DatabaseUnavailable, match="too busy"):
        await transactions.run(fail)

    assert len(tries) >= TRIES_AFTER_ROLLBACK
