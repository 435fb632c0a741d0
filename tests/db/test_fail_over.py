"""Another server takes over: connections lead to the one with writes, nothing unreplicated is acknowledged."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest
from sqlalchemy import URL
from structlog.testing import capture_logs

from fakes.conversations import CLAIMER, Conversation, open_conversation
from fakes.database_wire import database_wire
from fakes.raw_sql import BACKENDS, connected, end_leases
from fakes.replication import Replication, replicating
from fakes.waiting import HANG_SECONDS, until
from throughline.db.connection.address import Address, parse_address
from throughline.db.connection.connector import Connector
from throughline.db.connection.migrations import upgrade
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.runs.events import STRIDE
from throughline.db.statements.sql import sql
from throughline.domain.errors import DatabaseUnavailable
from throughline.domain.events import AnswerReset, NewEvent

SHORT_SECONDS = 0.3
NO_FOLDER = "/nonexistent"
READ_ONLY = {"default_transaction_read_only": "on"}


def several(database_url: str, *before: str) -> str:
    """Return an address that names further hosts before the test's server."""
    url = parse_address(database_url).url.set(drivername="postgresql")
    hosts = ",".join([*before, str(url.query.get("host", f"{url.host}:{url.port}"))])
    named = URL.create(url.drivername, url.username, url.password, database=url.database, query={"host": hosts})
    return named.render_as_string(hide_password=False)


@asynccontextmanager
async def silent_host() -> AsyncGenerator[tuple[str, Callable[[], int]]]:
    """Yield the place of a server that accepts connections and never answers, and how many came."""
    came: list[asyncio.StreamWriter] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer)

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", lambda: len(came)
        for writer in came:
            writer.transport.abort()


async def test_a_host_that_never_answers_leaves_the_next_its_time(database_url: str) -> None:
    async with silent_host() as (place, came):
        connector = Connector(parse_address(several(database_url, place)))

        first = await connector.connect(timeout=SHORT_SECONDS)
        second = await connector.connect(timeout=HANG_SECONDS)

        assert came() == 1  # the host that answered is asked first from then on
    assert [await each.fetchval("select 1") for each in (first, second)] == [1, 1]
    await asyncio.gather(first.close(), second.close())


async def test_a_server_without_writes_is_told_rather_than_one_that_is_away(database_url: str) -> None:
    connector = Connector(parse_address(several(database_url, NO_FOLDER)))

    with pytest.raises(asyncpg.TargetServerAttributeNotMatched):
        await connector.connect(server_settings=READ_ONLY)


async def test_a_standby_is_preferred_and_not_needed(database_url: str) -> None:
    address = f"{several(database_url, NO_FOLDER)}&target_session_attrs=prefer-standby"

    connection = await Connector(parse_address(address)).connect()

    assert await connection.fetchval("select 1") == 1
    await connection.close()


async def test_a_role_that_is_refused_ends_the_attempt(database_url: str) -> None:
    address = parse_address(several(database_url, NO_FOLDER))
    wrong = Address(address.url.set(password="wrong"), address.extra, address.hosts[::-1])

    with pytest.raises(asyncpg.InvalidPasswordError):
        await Connector(wrong).connect()


@asynccontextmanager
async def read_only(database_url: str) -> AsyncGenerator[None]:
    """Let the database take no writes inside the block, as a standby; connections to it end before and after."""

    async def change(setting: str) -> None:
        async with connected(database_url, default_transaction_read_only="off") as connection:
            await connection.execute(f"alter database {parse_address(database_url).url.database} {setting}")
            await connection.execute(f"select pg_terminate_backend(pid) from {BACKENDS} where pid <> pg_backend_pid()")

    await change("set default_transaction_read_only = on")
    try:
        yield
    finally:
        await change("reset default_transaction_read_only")


@pytest.mark.unpooled("it is the pooler that connects to the server")
@pytest.mark.parametrize("before", [(), (NO_FOLDER,)])
async def test_while_only_a_standby_answers_the_database_is_away(database_url: str, before: tuple[str, ...]) -> None:
    database = await Database.open(DatabaseConfig(url=several(database_url, *before)))

    async with read_only(database_url):
        with pytest.raises(DatabaseUnavailable, match="the server that answers is a standby or is set to read only"):
            await database.check_ready()

    assert await database.check_ready()
    await database.close()


@pytest.mark.listening("it waits for the listener")
@pytest.mark.unpooled("it is the pooler that connects to the server")
async def test_the_listener_outlasts_the_time_without_a_primary(database_url: str) -> None:
    database = await Database.open(DatabaseConfig(url=several(database_url, NO_FOLDER)))
    with capture_logs() as logs:
        async with read_only(database_url):
            await until(lambda: any(line["event"].startswith("notification listener could not") for line in logs))

    await until(lambda: database.notifier.is_listening)
    assert await database.check_ready()
    await database.close()


PID = sql("select pg_backend_pid() as pid, pg_sleep(:seconds)")


async def test_after_a_statement_without_an_answer_no_idle_connection_is_used(database_url: str) -> None:
    pool = ConnectionPool(parse_address(database_url), PoolConfig(size=2, timeout_seconds=5, answer_seconds=1.0))
    transactions = Transactions(pool)

    before = await asyncio.gather(*(transactions.fetch(PID, seconds=SHORT_SECONDS) for _ in range(2)))
    with pytest.raises(DatabaseUnavailable, match="did not answer in time"):
        await transactions.fetch(PID, seconds=3.0)
    after = await asyncio.gather(*(transactions.fetch(PID, seconds=SHORT_SECONDS) for _ in range(2)))

    assert not {rows[0]["pid"] for rows in before} & {rows[0]["pid"] for rows in after}
    await pool.close()


@pytest.mark.parametrize("is_abandoned", [False, True])
async def test_no_statement_is_cancelled_on_the_server(database_url: str, *, is_abandoned: bool) -> None:
    async with database_wire(database_url) as wire:
        pool = ConnectionPool(parse_address(wire.url), PoolConfig(size=1, timeout_seconds=5, answer_seconds=1.0))
        asking = asyncio.create_task(Transactions(pool).fetch(PID, seconds=3.0))
        if is_abandoned:
            await until(lambda: any("pg_sleep" in statement for statement in wire.statements))
            asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

        again = await Transactions(pool).fetch(PID, seconds=0.0)

        await pool.close()
    assert again
    assert not wire.cancels  # a cancelled commit is done on the primary without its standby


@pytest.fixture
async def replication() -> AsyncGenerator[Replication]:
    async with replicating() as servers:
        await upgrade(servers.url)
        yield servers


async def submitted(conversation: Conversation) -> bool | None:
    """Return whether the message was new; None if the database did not answer in time."""
    try:
        return not (await conversation.submit(key="once")).replayed
    except DatabaseUnavailable:
        return None


@pytest.mark.proof
@pytest.mark.timeout(900)
async def test_what_the_standby_lacks_is_not_acknowledged_to_a_second_try(replication: Replication) -> None:
    database = await Database.open(DatabaseConfig(url=replication.url))
    conversation = await open_conversation(database)
    replication.standby.kill()

    told = [await submitted(conversation) for _ in range(3)]
    replication.primary.kill()
    await replication.standby.start()
    await replication.promote()

    assert told == [None, None, None]
    assert await submitted(conversation)
    await database.close()


@pytest.mark.proof
@pytest.mark.timeout(900)
async def test_after_a_promotion_events_are_numbered_behind_all_that_readers_have_seen(
    replication: Replication,
) -> None:
    database = await Database.open(DatabaseConfig(url=replication.url))
    conversation = await open_conversation(database)
    claimed = await conversation.start()
    await database.events.append_events(claimed.lease, [NewEvent(1, AnswerReset(1)), NewEvent(2, AnswerReset(1))])

    replication.primary.kill()
    await replication.promote()
    await replication.standby.restart()  # it forgets when it was promoted
    await end_leases(replication.url_of(replication.standby))
    [again] = (await database.runs.claim(CLAIMER)).runs

    assert again.run.id == claimed.run.id
    assert again.next_event == 3 * STRIDE + 1
    await database.close()
