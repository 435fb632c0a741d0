"""Statements are written with names, and reach PostgreSQL in as few messages as their connection allows."""

import asyncio
import ssl
import sys
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest

from fakes.conversations import open_conversation
from fakes.database_wire import DatabaseWire, database_wire
from fakes.pooler import shared_address
from fakes.programs import environment_for_programs
from fakes.raw_sql import BACKENDS, hold_rows, run_sql, until_sql
from fakes.run_folder import FOLDER, shared
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.address import DatabaseUrls
from throughline.db.connection.failures import explain
from throughline.db.connection.migrations import status
from throughline.db.connection.pool import BEGIN_LIMITED, ConnectionPool, PoolConfig, Statement, statement
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database
from throughline.db.sessions.import_messages import Imported, import_session
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable
from throughline.domain.message import Source

ONE = sql("select cast(:number as integer) as one")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("select :a, :b, :a", Statement("select $1, $2, $1", ("a", "b"))),
        ("select :a::text, now()::date", Statement("select $1::text, now()::date", ("a",))),
        ("make_interval(secs => :seconds)", Statement("make_interval(secs => $1)", ("seconds",))),
        ("select 1", Statement("select 1", ())),
    ],
)
def test_each_name_is_one_numbered_parameter(written: str, read: Statement) -> None:
    assert statement(written) == read


def test_values_are_handed_over_in_the_order_of_the_names() -> None:
    assert statement("select :b, :a, :b").arguments({"a": 1, "b": 2, "c": 3}) == [2, 1]


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(KeyError, match="b"):
        statement("select :a, :b").arguments({"a": 1})


async def asked(wire: DatabaseWire, *, direct_url: str = "") -> list[str]:
    """Return what a single statement and a transaction of two make a warm connection ask."""
    address = DatabaseUrls(wire.url, direct_url).shared_address()
    pool = ConnectionPool(address, PoolConfig(size=1, timeout_seconds=5))
    transactions = Transactions(pool)

    async def two(tx: Statements) -> None:
        await tx.fetch(ONE, number=1)
        await tx.fetch(ONE, number=2)

    await transactions.fetch(ONE, number=1)
    wire.clear()
    await transactions.fetch(ONE, number=1)
    await transactions.run(two)
    await pool.close()
    return wire.statements


async def test_a_prepared_statement_costs_one_round_trip(database_url: str) -> None:
    async with database_wire(database_url) as wire:
        statements = await asked(wire)

    assert statements == [ONE.text, "begin", ONE.text, ONE.text, "commit"]
    assert wire.round_trips == 5


async def test_behind_a_pooler_each_statement_stands_in_a_transaction_that_sets_its_limits(database_url: str) -> None:
    async with database_wire(database_url) as wire:
        statements = await asked(wire, direct_url=database_url)

    assert statements == [BEGIN_LIMITED, ONE.text, "commit", BEGIN_LIMITED, ONE.text, ONE.text, "commit"]
    assert all(
        statement in BEGIN_LIMITED for statement in ("set local statement_timeout = '7s'", "set local jit = 'off'")
    )


async def test_a_session_s_line_is_seen_as_it_is_behind_a_wait(database: Database, database_url: str) -> None:
    conversation = await open_conversation(database)
    looked = "with w as materialized (select pg_advisory_xact_lock(7)) select l.queued from w cross join {} as l"
    fresh = looked.format("lateral session_line($1)")
    of_the_statement = looked.format("(select count(*) as queued from runs where session_id = $1)")
    async with hold_rows(database_url, "select pg_advisory_xact_lock(7)"):
        looking = [
            asyncio.create_task(run_sql(database_url, statement, conversation.session.id))
            for statement in (fresh, of_the_statement)
        ]
        waiting = f"select count(*) from {BACKENDS} where wait_event = 'advisory'"
        await until_sql(database_url, waiting, [(len(looking),)])
        await conversation.submit("Hello")

    assert await asyncio.gather(*looking) == [[(1,)], [(0,)]]


async def test_a_statement_nobody_waits_for_ends_on_the_server_too(database_url: str) -> None:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=5))
    sleeping = asyncio.create_task(Transactions(pool).fetch(sql("select pg_sleep(60)")))
    running = f"select count(*) from {BACKENDS} where query = 'select pg_sleep(60)' and state = 'active'"

    await until_sql(database_url, running, [(1,)])
    sleeping.cancel()

    await until_sql(database_url, running, [(0,)])
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    await pool.close()


async def test_a_connection_left_inside_a_transaction_is_not_used_again(database_url: str) -> None:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=5))
    async with pool.connection() as left:
        await left.execute("begin")

    async with pool.connection() as connection:
        assert not connection.is_in_transaction()
        assert connection is not left
    await pool.close()


async def test_a_closed_pool_connects_no_more(database_url: str) -> None:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=5))
    await pool.close()

    with pytest.raises(DatabaseUnusable, match="closed"):
        await Transactions(pool).fetch(ONE, number=1)


def test_an_address_the_driver_cannot_use_is_the_operator_s_matter() -> None:
    failure = explain(asyncpg.ClientConfigurationError("no root certificate"))

    assert isinstance(failure.error, DatabaseUnusable)
    assert "DATABASE_URL" in failure.error.detail


def test_a_certificate_that_is_not_trusted_is_told_with_its_reason() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "Hostname mismatch, certificate is not valid for 'db'."

    failure = explain(error)

    assert isinstance(failure.error, DatabaseUnavailable)
    assert "not trusted (Hostname mismatch, certificate is not valid for 'db'). Check" in failure.error.detail
    assert not failure.is_repeatable


async def test_a_server_without_tls_is_told_where_the_address_asks_for_it() -> None:
    async def refuse_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # SSLRequest
        writer.write(b"N")
        writer.close()

    async with await asyncio.start_server(refuse_tls, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(DatabaseUnavailable, match=r"accepts no TLS connections, but the sslmode of DATABASE_URL"):
            await status(f"postgresql://anna@127.0.0.1:{port}/d?sslmode=require")


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


PROCESSES = 3
COME_AND_GO = """
import pathlib, secrets
from fakes.run_folder import run_folder, shared

def make():
    made = run_folder() / secrets.token_hex(8)
    made.touch()
    return str(made)

for _ in range(300):
    with shared("thing", make, lambda made: pathlib.Path(made).unlink()) as found:
        assert pathlib.Path(found).exists(), "it was ended already"
"""


@pytest.mark.slow
async def test_nobody_is_handed_what_another_process_has_ended(tmp_path: Path) -> None:
    environment = {**environment_for_programs(), FOLDER: str(tmp_path)}
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", COME_AND_GO, env=environment)
        for _ in range(PROCESSES)
    ]
    async with asyncio.timeout(HANG_SECONDS):
        codes = [await process.wait() for process in processes]

    assert codes == [0] * PROCESSES
    assert names_in(tmp_path) == {"thing", "thing.lock", "thing.users"}


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_first_makes_a_thing_and_the_last_ends_it() -> None:
    told = []

    def make() -> str:
        told.append("made")
        return "it"

    with shared("in two tests", make, told.append) as first, shared("in two tests", make, told.append) as second:
        assert first == second == "it"

    assert told == ["made", "it"]
