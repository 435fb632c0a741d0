"""Behind a real PgBouncer in transaction mode: limits hold, nothing is left behind, and wrong addresses are told."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest
from sqlalchemy import make_url

from fakes.conversations import open_conversation
from fakes.pooler import PROGRAM, Pooler, pooler, urls_of
from fakes.raw_sql import BACKENDS, run_sql, until_sql
from fakes.waiting import HANG_SECONDS
from throughline.client import connect
from throughline.db.connection.address import DatabaseUrls, parse_address
from throughline.db.connection.failures import explain
from throughline.db.connection.migrations import status, upgrade
from throughline.db.connection.pool import SESSION_SETTINGS, ConnectionPool, PoolConfig
from throughline.db.connection.pooler import check_urls
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import (
    Database,
    DatabaseConfig,
    DatabaseLocation,
    open_address,
    open_database,
    open_direct_address,
)
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import RunId
from throughline.domain.errors import DatabaseBusy, DatabaseFull, DatabaseUnavailable, DatabaseUnusable

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed")
NAMES = ", ".join(f"'{name}'" for name in (*SESSION_SETTINGS, "transaction_timeout", "TimeZone"))
SETTINGS = f"select name, setting from pg_settings where name in ({NAMES}) and name <> 'application_name' order by name"
POOL_SIZE = 2


@pytest.fixture(scope="module")
def bouncer(server_url: str) -> Iterator[Pooler]:
    with pooler(server_url, size=POOL_SIZE) as started:
        yield started


@pytest.fixture
def urls(bouncer: Pooler, database_url: str) -> DatabaseUrls:
    return DatabaseUrls(bouncer.url(database_url), database_url)


@pytest.fixture
async def transactions(urls: DatabaseUrls) -> AsyncIterator[Transactions]:
    pool = ConnectionPool(urls.shared_address(), PoolConfig(size=5, timeout_seconds=5))
    yield Transactions(pool)
    await pool.close()


@pytest.fixture
async def pooled(urls: DatabaseUrls) -> AsyncIterator[Database]:
    opened = await Database.open(DatabaseConfig(url=urls.url, direct_url=urls.direct_url, pool_size=5))
    yield opened
    await opened.close()


async def test_the_limits_hold_in_each_transaction_and_none_is_left_behind(
    transactions: Transactions, urls: DatabaseUrls
) -> None:
    untouched = await run_sql(urls.direct_url, SETTINGS)

    async def look(tx: Statements) -> dict[str, str]:
        await tx.fetch(sql("select cast(:texts as text[])"), texts=["a"])  # asyncpg has to learn about the type
        return {row["name"]: row["setting"] for row in await tx.fetch(sql(SETTINGS))}

    inside = await transactions.run(look)
    alone = {row["name"]: row["setting"] for row in await transactions.fetch(sql(SETTINGS))}
    await asyncio.gather(*(transactions.run(look) for _ in range(10)))

    assert inside == alone
    assert (inside["statement_timeout"], inside["lock_timeout"], inside["jit"]) == ("7000", "3000", "off")
    assert inside["idle_in_transaction_session_timeout"] == "4000"
    assert inside.get("transaction_timeout", "20000") == "20000"
    left = await run_bare(urls.url, SETTINGS, times=2 * POOL_SIZE)
    assert left == [untouched] * (2 * POOL_SIZE)


async def run_bare(url: str, statement: str, *, times: int) -> list[list[tuple[object, ...]]]:
    """Return what the server connections answer in turn, without any setting of ours."""
    connection = await asyncpg.connect(**parse_address(url).arguments(), statement_cache_size=0)
    answers = []
    for _ in range(times):
        async with connection.transaction():
            answers.append([tuple(row) for row in await connection.fetch(statement)])
    await connection.close()
    return answers


async def test_no_listener_no_lock_and_no_statement_is_left_on_a_shared_connection(
    pooled: Database, urls: DatabaseUrls
) -> None:
    conversations = [await open_conversation(pooled) for _ in range(5)]
    await asyncio.gather(*(one.say("Hello") for one in conversations))

    for statement in ("select name from pg_prepared_statements where name <> ''", "select pg_listening_channels()"):
        assert await run_bare(urls.url, statement, times=2 * POOL_SIZE) == [[]] * (2 * POOL_SIZE)


async def test_a_statement_that_takes_too_long_is_ended(transactions: Transactions) -> None:
    async def impatient(tx: Statements) -> None:
        await tx.fetch(sql("set local statement_timeout = '50ms'"))
        await tx.fetch(sql("select pg_sleep(60)"))

    with pytest.raises(DatabaseBusy):
        await transactions.run(impatient)

    assert await transactions.fetch(sql("select 1 as one"))


async def test_a_statement_nobody_waits_for_ends_on_the_server(transactions: Transactions, urls: DatabaseUrls) -> None:
    sleeping = asyncio.create_task(transactions.fetch(sql("select pg_sleep(60)")))
    running = f"select count(*) from {BACKENDS} where query = 'select pg_sleep(60)' and state = 'active'"

    await until_sql(urls.direct_url, running, [(1,)])
    sleeping.cancel()

    await until_sql(urls.direct_url, running, [(0,)])
    assert await transactions.fetch(sql("select 1 as one"))


async def test_more_transactions_than_server_connections_take_turns(pooled: Database, urls: DatabaseUrls) -> None:
    conversations = [await open_conversation(pooled) for _ in range(6)]

    for text in ("first", "second"):
        await asyncio.gather(*(one.say(text) for one in conversations))

    for one in conversations:
        assert [message.position for message in await one.messages()] == [1, 2]
    ours = "application_name = 'throughline'"
    count = (await run_sql(urls.direct_url, f"select count(*)::int from {BACKENDS} where {ours}"))[0][0]
    assert count in range(1, POOL_SIZE + 2)  # one more renews leases


async def test_events_cancels_and_work_reach_the_other_process(pooled: Database, urls: DatabaseUrls) -> None:
    other = await Database.open(DatabaseConfig(url=urls.url, direct_url=urls.direct_url, pool_size=2))
    run_id = (await (await open_conversation(pooled)).submit("Hi")).run.id
    cancelled: list[RunId] = []
    other.notifier.on_cancel(cancelled.append)
    async with other.notifier.subscribe(run_id) as signal:
        pooled.notifier.announce_events(run_id)
        pooled.notifier.announce_cancel(run_id)
        pooled.notifier.announce_work()

        assert await signal.wait(HANG_SECONDS)
        assert await other.notifier.work.wait(HANG_SECONDS)
        assert cancelled == [run_id]
    await other.close()


async def test_processes_that_start_at_once_migrate_once(bouncer: Pooler, empty_database_url: str) -> None:
    where = DatabaseLocation(bouncer.url(empty_database_url), direct_url=empty_database_url)

    async def start() -> None:
        async with open_database(where, DatabaseConfig(url="", pool_size=1), migrate=True) as database:
            await database.check_ready()

    await asyncio.gather(start(), start())

    assert (await status(empty_database_url)).is_current


async def test_a_client_program_takes_both_addresses(urls: DatabaseUrls) -> None:
    async with connect(urls.url, direct_url=urls.direct_url, user="anna") as client:
        session = await client.new_session()
        run = await client.submit(session.id, "Hello")

        assert (await client.get_run(run.id)).id == run.id


async def test_a_pooler_without_a_direct_address_is_refused_by_every_way_in(bouncer: Pooler, database_url: str) -> None:
    through = bouncer.url(database_url)

    with pytest.raises(DatabaseUnusable, match="DATABASE_DIRECT_URL to the same database"):
        async with open_address(DatabaseLocation(through)):
            pass
    with pytest.raises(DatabaseUnusable, match="DATABASE_DIRECT_URL to the same database"):
        async with connect(through):
            pass
    with pytest.raises(DatabaseUnusable, match="DATABASE_DIRECT_URL to the same database"):
        await Database.open(DatabaseConfig(url=through))
    with pytest.raises(DatabaseUnusable, match="DATABASE_DIRECT_URL to the same database"):
        await upgrade(through)


async def test_a_pooler_that_drops_our_settings_is_refused_all_the_same(server_url: str, database_url: str) -> None:
    dropped = f"ignore_startup_parameters = {', '.join(SESSION_SETTINGS)}"
    with pooler(server_url, size=POOL_SIZE, more=dropped) as lenient, pytest.raises(DatabaseUnusable, match="pooler"):
        await check_urls(DatabaseUrls(lenient.url(database_url)))


async def test_a_pooler_that_keeps_sessions_hears_what_is_told(server_url: str, database_url: str) -> None:
    with pooler(server_url, mode="session") as keeping:
        url = keeping.url(database_url)
        async with open_address(DatabaseLocation(url, direct_url=url)) as taken:
            assert taken == DatabaseUrls(url, url)


async def test_a_direct_address_that_is_a_pooler_s_is_refused(urls: DatabaseUrls) -> None:
    with pytest.raises(DatabaseUnusable, match="DATABASE_DIRECT_URL leads to a connection pooler"):
        await check_urls(DatabaseUrls(urls.url, urls.url))


async def test_a_direct_address_of_another_database_is_refused(urls: DatabaseUrls, empty_database_url: str) -> None:
    with pytest.raises(DatabaseUnusable, match="another database than DATABASE_URL"):
        await check_urls(DatabaseUrls(urls.url, empty_database_url))


async def test_postgresql_itself_is_taken_at_one_address_and_at_both(database_url: str) -> None:
    for direct_url in ("", database_url):
        async with open_address(DatabaseLocation(database_url, direct_url=direct_url)) as taken:
            assert taken == DatabaseUrls(database_url, direct_url)


async def test_an_address_that_leads_nowhere_is_told_with_its_setting(urls: DatabaseUrls) -> None:
    nowhere = "postgresql://who:secret@127.0.0.1:1/none"

    with pytest.raises(DatabaseUnavailable, match=r"127.0.0.1:1 \(DATABASE_DIRECT_URL\)"):
        await check_urls(DatabaseUrls(urls.url, nowhere))
    with pytest.raises(DatabaseUnavailable, match=r"127.0.0.1:1 \(DATABASE_URL\)"):
        await check_urls(DatabaseUrls(nowhere, urls.direct_url))


async def test_what_needs_the_direct_address_alone_asks_no_pooler(database_url: str) -> None:
    nowhere = "postgresql://who:secret@127.0.0.1:1/none"

    async with open_direct_address(DatabaseLocation(nowhere, direct_url=database_url)) as url:
        assert (await status(url)).is_current
    with pytest.raises(DatabaseUnavailable, match=r"127.0.0.1:1 \(DATABASE_DIRECT_URL\)"):
        async with open_direct_address(DatabaseLocation(database_url, direct_url=nowhere)):
            pass


async def test_a_direct_address_alone_is_refused_where_it_is_a_pooler_s(urls: DatabaseUrls) -> None:
    for where in (DatabaseLocation(urls.url), DatabaseLocation(urls.url, direct_url=urls.url)):
        with pytest.raises(DatabaseUnusable, match="connection pooler"):
            async with open_direct_address(where):
                pass


async def test_a_direct_address_alone_is_compared_with_a_pooler_that_answers(
    urls: DatabaseUrls, empty_database_url: str
) -> None:
    with pytest.raises(DatabaseUnusable, match="another database than DATABASE_URL"):
        async with open_direct_address(DatabaseLocation(urls.url, direct_url=empty_database_url)):
            pass


async def test_a_wrong_password_or_database_is_told_through_a_pooler(urls: DatabaseUrls) -> None:
    address = make_url(urls.url)
    if address.password is None:
        pytest.skip("this server trusts everybody")
    for wrong in (address.set(password="wrong"), address.set(username="who"), address.set(database="missing")):
        with pytest.raises(DatabaseUnusable, match="check role, password"):
            await check_urls(DatabaseUrls(wrong.render_as_string(hide_password=False), urls.direct_url))


async def test_a_suite_that_is_to_run_behind_a_pooler_does(database: Database, database_url: str) -> None:
    urls = DatabaseUrls(**urls_of(database_url))

    assert bool(urls.direct_url) == bool(os.environ.get("TEST_POOLER"))
    assert (urls.url != database_url) == bool(urls.direct_url)
    await database.check_ready()


@pytest.mark.parametrize(
    ("told", "error", "advice"),
    [
        ("unsupported startup parameter: jit", DatabaseUnusable, "DATABASE_DIRECT_URL to the same database"),
        ("unsupported startup parameter in options: jit", DatabaseUnusable, "DATABASE_DIRECT_URL to the same database"),
        ("no such database: x", DatabaseUnusable, "refused the connection"),
        ("no more connections allowed (max_client_conn)", DatabaseFull, "pooler has no connection left"),
        ("server conn crashed?", DatabaseUnavailable, "closed the connection"),
    ],
)
def test_what_the_pooler_itself_says_is_told_apart(told: str, error: type[Exception], advice: str) -> None:
    failure = explain(asyncpg.ProtocolViolationError(told))

    assert type(failure.error) is error
    assert advice in str(failure.error.detail)
    assert failure.is_repeatable == (error is DatabaseUnavailable)


@pytest.mark.parametrize(
    "lost", [asyncpg.InvalidSQLStatementNameError("secret"), asyncpg.DuplicatePreparedStatementError("secret")]
)
def test_a_prepared_statement_that_got_lost_points_at_the_pooler(lost: Exception) -> None:
    failure = explain(lost)

    assert isinstance(failure.error, DatabaseUnusable)
    assert "DATABASE_DIRECT_URL to the same database" in failure.error.detail
    assert "secret" not in failure.error.detail
