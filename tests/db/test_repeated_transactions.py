"""Transactions that are repeated: what a first try has stored meanwhile is found by the second."""

import asyncio

from fakes.raw_sql import BACKENDS, until_sql
from throughline.db.connection.transactions import Statements
from throughline.db.database import Database
from throughline.db.sessions.import_messages import Imported, import_session
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import SessionId
from throughline.domain.message import Source


async def test_a_try_that_meets_its_own_first_one_at_the_primary_key_finds_its_row(
    database: Database, database_url: str
) -> None:
    owner_id, session_id = await database.users.get_or_create("anna"), SessionId(new_id())
    new = Imported(owner_id, "assistant", "", Source.API, {})
    is_written, may_commit = asyncio.Event(), asyncio.Event()

    async def first_try(tx: Statements) -> None:
        await import_session(tx, session_id, new, [])
        is_written.set()
        await may_commit.wait()

    transactions = database._transactions  # noqa: SLF001  # a first try whose answer is lost goes on like this
    first = asyncio.create_task(transactions.run(first_try))
    await is_written.wait()
    second = asyncio.create_task(transactions.run(lambda tx: import_session(tx, session_id, new, [])))
    await until_sql(database_url, f"select count(*) from {BACKENDS} where wait_event_type = 'Lock'", [(1,)])
    may_commit.set()

    assert (await second).id == session_id
    await first
