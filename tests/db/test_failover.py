"""Failures that pass are temporary, and one at the start names the place that was asked."""

import pytest

from fakes.pooler import shared_address
from throughline.db.connection.failures import explain
from throughline.db.connection.migrations import status
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import DatabaseConfig, DatabaseLocation, open_address, open_database
from throughline.db.statements.sql import sql
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable


class Refusal(Exception):
    """What a server answers, as far as we look at it."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("words of the server")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    "code", ["25006", "25P03", "25P04", "08006", "53100", "53200", "53300", "57000", "57014", "57P01", "57P03", "58030"]
)
def test_what_can_pass_is_temporary(code: str) -> None:
    assert isinstance(explain(Refusal(code)).error, DatabaseUnavailable)


@pytest.mark.parametrize("code", ["28P01", "28000", "3D000", "42501", "42P01", "XX000"])
def test_what_an_operator_must_mend_is_not(code: str) -> None:
    assert isinstance(explain(Refusal(code)).error, DatabaseUnusable)


@pytest.mark.unpooled("it is the pooler that chooses another connection to the server")
async def test_after_a_failover_the_pool_asks_a_new_connection(database_url: str) -> None:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=5))
    tries: list[int] = []

    async def intent(tx: Statements) -> None:
        tries.append((await tx.fetch(sql("select pg_backend_pid() as pid")))[0]["pid"])
        if len(tries) == 1:
            await tx.fetch(sql("set transaction read only"))
        await tx.fetch(sql("update users set name = name"))

    await Transactions(pool).run(intent)

    assert len(set(tries)) == 2
    await pool.close()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://nobody:canary@127.0.0.1:1/none", "127.0.0.1:1"),
        ("postgresql://nobody:canary@name.invalid/none", "name.invalid:5432"),
        ("postgresql://nobody:canary@/none?host=/nonexistent", "/nonexistent"),
    ],
)
async def test_an_unreachable_database_is_named_at_the_start(url: str, place: str) -> None:
    with pytest.raises(DatabaseUnavailable) as at_open:
        async with open_database(DatabaseLocation(url), DatabaseConfig(url=""), migrate=False):
            pass
    with pytest.raises(DatabaseUnavailable) as at_migration:
        async with open_address(DatabaseLocation(url)) as urls:
            await status(urls.for_sessions)

    for told in (at_open.value.detail, at_migration.value.detail):
        assert place in told
        assert "DATABASE_URL" in told
        assert "canary" not in told
        assert "nobody" not in told
