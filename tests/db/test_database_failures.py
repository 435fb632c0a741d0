"""When the database fails: tried again where that is safe, told in our own words, the pool stays usable."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from fakes.conversations import BEHIND_ALL, Conversation, open_conversation, user_message
from fakes.pooler import shared_address, urls_of
from fakes.raw_sql import BACKENDS, run_sql, until_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.address import parse_address
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.sessions.repository import SessionChange
from throughline.db.statements.sql import sql
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable, InvalidInput, ThroughlineError
from throughline.domain.message import Source
from throughline.domain.run import Outcome, RunError, RunStatus
from throughline.domain.session import NewSession

SECRET = "my-diary-entry"
AT_LEAST_17 = sql("select current_setting('server_version_num')::integer >= 170000 as holds")
KILL_POOL = f"select pg_terminate_backend(pid) from {BACKENDS} where application_name = 'throughline'"


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


@pytest.fixture
async def transactions(database_url: str) -> AsyncGenerator[Transactions]:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=2, timeout_seconds=5))
    yield Transactions(pool)
    await pool.close()


@pytest.fixture
async def transactions_on_one(database_url: str) -> AsyncGenerator[Transactions]:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=0.1))
    yield Transactions(pool)
    await pool.close()


async def test_killed_connections_are_replaced_without_anybody_noticing(
    conversation: Conversation, database_url: str
) -> None:
    for _ in range(3):
        await asyncio.gather(*(conversation.reload() for _ in range(5)))
        await run_sql(database_url, KILL_POOL)
        await conversation.say("still here")

    assert len(await conversation.messages()) == 3


async def test_a_transaction_cut_before_its_commit_is_run_again_as_a_whole(
    conversation: Conversation, transactions: Transactions, database_url: str
) -> None:
    claimed = await conversation.start()
    tries = 0

    async def intent(tx: Statements) -> int:
        nonlocal tries
        tries += 1
        await tx.fetch(sql("update sessions set title = title || 'x'"))
        if tries == 1:
            await run_sql(database_url, KILL_POOL)
        rows = await tx.fetch(sql("select length(title) as length from sessions"))
        return int(rows[0]["length"])

    length = await transactions.run(intent)

    assert (tries, length) == (2, len((await conversation.reload()).title))
    await conversation.end(claimed.lease)


async def test_a_deadlock_is_resolved_by_trying_again(database: Database, transactions: Transactions) -> None:
    first, second = await open_conversation(database), await open_conversation(database)
    lock = sql("update sessions set title = title || 'x' where id = :id")
    both_hold_one = asyncio.Barrier(2)
    tries = 0

    async def crossed(tx: Statements, one: Conversation, other: Conversation) -> None:
        nonlocal tries
        tries += 1
        await tx.fetch(lock, id=one.session.id)
        if tries <= 2:
            await both_hold_one.wait()
        await tx.fetch(lock, id=other.session.id)

    await asyncio.gather(
        transactions.run(lambda tx: crossed(tx, first, second)),
        transactions.run(lambda tx: crossed(tx, second, first)),
    )

    assert tries == 3
    assert [(await one.reload()).title for one in (first, second)] == ["xx", "xx"]


async def test_a_schema_change_under_load_is_not_noticed(conversation: Conversation, database_url: str) -> None:
    await conversation.reload()

    await run_sql(database_url, "alter table sessions alter column summary_tokens type bigint")

    assert await asyncio.gather(*(conversation.reload() for _ in range(10)))


async def test_a_full_pool_is_told_in_time_and_usable_afterwards(transactions_on_one: Transactions) -> None:
    is_held, may_go = asyncio.Event(), asyncio.Event()

    async def hold(tx: Statements) -> None:
        await tx.fetch(sql("select 1"))
        is_held.set()
        await may_go.wait()

    holding = asyncio.create_task(transactions_on_one.run(hold))
    await is_held.wait()

    with pytest.raises(DatabaseUnavailable, match="in use") as unavailable:
        await transactions_on_one.fetch(sql("select 1"))

    assert unavailable.value.delay_seconds == 1.0
    may_go.set()
    await holding
    assert await transactions_on_one.fetch(sql("select 1 as one"))


@pytest.mark.slow
async def test_a_pool_of_one_survives_a_storm_of_cancellations(database_url: str) -> None:
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=1, pool_timeout_seconds=5))
    conversation = await open_conversation(database)
    for round_number in range(60):
        work = [conversation.submit("Hi", key=f"{round_number}-{n}") for n in range(3)]
        tasks = [asyncio.ensure_future(one) for one in (*work, conversation.say("x"))]
        for _ in range(round_number % 12):
            await asyncio.sleep(0)
        await asyncio.sleep(0.0003 * (round_number % 10))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    ours = f"select 1 from {BACKENDS} where application_name = 'throughline' having count(*) = 1"
    async with asyncio.timeout(HANG_SECONDS):
        assert (await conversation.reload()).id == conversation.session.id
        await until_sql(database_url, ours)  # the server's side of those hung up ends a bit later
    stored = await conversation.messages()
    assert [message.position for message in stored] == list(range(1, len(stored) + 1))
    await database.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://nobody:pw@127.0.0.1:1/none",
        "postgresql://nobody:pw@/none?host=/nonexistent",
        "postgresql://nobody:pw@name.invalid/none",
    ],
)
async def test_an_unreachable_database_is_unavailable(url: str) -> None:
    with pytest.raises(DatabaseUnavailable) as unavailable:
        await Database.open(DatabaseConfig(url=url))

    assert "pw" not in unavailable.value.detail


async def test_a_wrong_password_or_database_is_unusable(database_url: str) -> None:
    address = parse_address(database_url).url
    if address.password is None:
        pytest.skip("this server trusts everybody")

    for wrong in (address.set(password="wrong"), address.set(database="missing"), address.set(username="who")):
        with pytest.raises(DatabaseUnusable, match="DATABASE_URL"):
            await Database.open(DatabaseConfig(url=wrong.render_as_string(hide_password=False)))


async def test_errors_never_hold_a_users_words(conversation: Conversation) -> None:
    claimed = await conversation.start()
    sessions, runs = conversation.database.sessions, conversation.database.runs
    messages = conversation.database.messages
    nul = f"{SECRET}\x00"
    overlong = NewSession(
        owner_id=conversation.owner_id,
        agent=f"{SECRET}\ud800",
        title=SECRET,
        source=Source.API,
        metadata={},
    )
    outcome = Outcome(RunStatus.FAILED, error=RunError("x", nul))

    for attempt in (
        messages.append_message(claimed.lease, "nul", user_message(nul)),
        messages.append_message(claimed.lease, "many", user_message(SECRET, tokens=2**40)),
        messages.append_message(claimed.lease, "negative", user_message(SECRET, tokens=-1)),
        sessions.update(conversation.owner_id, conversation.session.id, SessionChange(metadata={"a": nul})),
        sessions.create(overlong),
        runs.finish(claimed.lease, outcome, (), BEHIND_ALL),
    ):
        with pytest.raises(ThroughlineError) as refused:
            await attempt
        told = f"{refused.value!r} {refused.value.__cause__!r} {refused.value.__context__!r}"
        assert SECRET not in told


async def test_a_value_that_cannot_be_stored_is_invalid_input(conversation: Conversation) -> None:
    with pytest.raises(InvalidInput):
        await conversation.submit("a\x00b")


async def test_no_statement_runs_for_ever(transactions: Transactions) -> None:
    rows = await transactions.fetch(
        sql(
            "select name, setting from pg_settings where name in ('statement_timeout', 'lock_timeout', 'jit',"
            " 'idle_in_transaction_session_timeout', 'TimeZone', 'transaction_timeout') order by lower(name)"
        )
    )

    has_limit_of_transactions = (await transactions.fetch(AT_LEAST_17))[0]["holds"]
    newest = ["20000"] if has_limit_of_transactions else []
    assert [row["setting"] for row in rows] == ["4000", "off", "3000", "7000", "UTC", *newest]
