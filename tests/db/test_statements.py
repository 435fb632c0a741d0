"""Statements are written with names, and reach PostgreSQL in as few messages as their connection allows."""

import pytest

from app.db.connection.address import parse_address
from app.db.connection.pool import ConnectionPool, PoolConfig
from app.db.connection.statement import Statement, statement
from app.db.connection.transactions import Statements, Transactions
from app.db.statements.sql import sql
from app.domain.errors import DatabaseUnusable
from fakes.database_wire import DatabaseWire, database_wire

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


async def asked(wire: DatabaseWire, options: str = "") -> list[str]:
    """Return what a single statement and a transaction of two make a warm connection ask."""
    pool = ConnectionPool(parse_address(f"{wire.url}{options}"), PoolConfig(size=1, timeout_seconds=5))
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


async def test_behind_a_transaction_pooler_every_statement_stands_in_a_transaction(database_url: str) -> None:
    async with database_wire(database_url) as wire:
        statements = await asked(wire, "?prepared_statement_cache_size=0")

    assert statements == ["begin", ONE.text, "commit", "begin", ONE.text, ONE.text, "commit"]


@pytest.mark.parametrize("option", ["port", "prepared_statement_cache_size"])
def test_an_option_that_must_be_a_number_is_refused_otherwise(option: str) -> None:
    with pytest.raises(DatabaseUnusable, match=f"{option}=many"):
        parse_address(f"postgresql://u:p@h/d?{option}=many")
