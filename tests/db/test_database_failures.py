"""When the database fails: tried again where that is safe, told in our own words, the pool stays usable."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from fakes.conversations import (
    BEHIND_ALL,
    CLAIMER,
    Conversation,
    claim_next,
    is_held,
    open_conversation,
    pulse_of,
    user_message,
)
from fakes.database_wire import DatabaseWire, database_wire
from fakes.pooler import shared_address, urls_of
from fakes.raw_sql import BACKENDS, run_sql, until_sql
from fakes.run_folder import memory_folder
from fakes.shared_server import copy_data_dir
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.address import parse_address
from throughline.db.connection.failures import explain
from throughline.db.connection.migrations import status
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database, DatabaseConfig, DatabaseLocation, open_address, open_database
from throughline.db.sessions.repository import SessionChange
from throughline.db.side_jobs import Job, JobClaim
from throughline.db.statements.sql import sql
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable, InvalidInput, ThroughlineError
from throughline.domain.message import Source
from throughline.domain.run import USER_STEP, OnBusy, Outcome, RunError, RunStatus
from throughline.domain.session import NewSession
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer
from throughline.postgres_server.process import find_server
from throughline.slack.store.database import slack_database
from throughline.slack.store.outbox import DeliveryClaim

SECRET = "my-diary-entry"
AT_LEAST_17 = sql("select current_setting('server_version_num')::integer >= 170000 as holds")
KILL_POOL = f"select pg_terminate_backend(pid) from {BACKENDS} where application_name = 'throughline'"


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


@pytest.mark.calm("it counts tries")
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


@pytest.mark.calm("it counts tries")
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


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tl-", dir=memory_folder()) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "data"


def kill_at_once(data_dir: Path) -> None:
    """Kill all of the server's processes, none of which gets to write what it still holds."""
    server = find_server(data_dir / "postgres" / "cluster")
    assert server is not None
    processes = [server, *server.children(recursive=True)]
    for process in processes:
        process.suspend()
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, timeout=10)


@pytest.mark.slow
@pytest.mark.parametrize("step", [USER_STEP, "assistant:0", "tool:0:0"])
async def test_a_stored_step_survives_a_killed_server(data_dir: Path, step: str) -> None:
    await copy_data_dir(data_dir)
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir))
    database = await Database.open(DatabaseConfig(url=server.url))
    conversation = await open_conversation(database)
    claimed = await conversation.start()

    await database.messages.append_message(claimed.lease, step, user_message("Hello"))
    kill_at_once(data_dir)
    await database.close()

    again = await EmbeddedServer.start(EmbeddedConfig(data_dir))
    assert await run_sql(again.url, "select step, content from messages") == [(step, "Hello")]
    await again.stop()
    await server.stop()  # gives back its share too: with one left the server would run on in a folder that is removed
    assert find_server(data_dir / "postgres" / "cluster") is None


NOTICE = """
    insert into slack_deliveries (id, team_id, channel_id, thread_ts, message_ts, reader_id, reader_team_id, notice)
    values (gen_random_uuid(), 'T', 'C', $1, $1, 'U', 'T', 'hello')
"""


@pytest.fixture
async def between(database_url: str) -> AsyncIterator[DatabaseWire]:
    async with database_wire(database_url) as wire:
        yield wire


@pytest.fixture
async def conversation_lost(between: DatabaseWire) -> AsyncIterator[Conversation]:
    database = await Database.open(DatabaseConfig(url=between.url, pool_size=2))
    yield await open_conversation(database)
    await database.close()


async def number_of(url: str, table: str) -> object:
    return (await run_sql(url, f"select count(*) from {table}"))[0][0]


@pytest.mark.parametrize("key", [None, "k1"])
async def test_a_message_whose_acceptance_was_not_heard_is_there_once_and_claimed(
    conversation_lost: Conversation, between: DatabaseWire, database_url: str, key: str | None
) -> None:
    between.cut_next()

    submitted = await conversation_lost.submit("Hello", key=key, fingerprint="f", claimer=CLAIMER)

    assert between.cuts == 1
    assert not submitted.replayed
    assert submitted.claimed is not None
    assert await number_of(database_url, "runs") == 1


async def test_a_message_that_interrupts_asks_to_stop_though_nobody_heard_the_answer(
    conversation_lost: Conversation, between: DatabaseWire, database_url: str
) -> None:
    first = await conversation_lost.start()
    between.cut_next()

    await conversation_lost.submit("stop", on_busy=OnBusy.INTERRUPT)

    assert (await pulse_of(conversation_lost.database, first.lease)).is_cancel_requested
    assert await number_of(database_url, "runs") == 2


async def test_an_end_that_was_not_heard_is_the_end(
    conversation_lost: Conversation, between: DatabaseWire, database_url: str
) -> None:
    claimed = await conversation_lost.start()
    await conversation_lost.database.messages.append_message(claimed.lease, "user", user_message("Hello"))
    between.cut_next()

    run = await conversation_lost.end(claimed.lease, "the answer")

    assert between.cuts == 1
    assert run.status is RunStatus.SUCCEEDED
    assert run.message_id == (await conversation_lost.messages())[-1].id
    assert await number_of(database_url, "messages") == 2


async def test_a_claim_that_was_not_heard_is_made_once(
    conversation_lost: Conversation, between: DatabaseWire, database_url: str
) -> None:
    run = (await conversation_lost.start()).run
    await run_sql(database_url, "update runs set lease_until = now() - interval '1 second'")
    between.cut_next()

    claimed = await claim_next(conversation_lost.database.runs, CLAIMER)

    assert between.cuts == 1
    assert claimed is not None
    assert (claimed.run.id, claimed.run.attempt) == (run.id, 2)
    assert await is_held(conversation_lost.database, claimed.lease)


async def test_a_retried_claim_does_not_pass_over_its_own_run(
    conversation_lost: Conversation, between: DatabaseWire, database_url: str
) -> None:
    await conversation_lost.start()
    await run_sql(database_url, "update runs set lease_until = now() - interval '1 second'")
    between.cut_next()

    claimed = await claim_next(conversation_lost.database.runs, replace(CLAIMER, skipped_attempt=2))

    assert between.cuts == 1
    assert claimed is not None


async def test_a_job_whose_claim_was_not_heard_is_claimed(
    conversation_lost: Conversation, between: DatabaseWire
) -> None:
    jobs = conversation_lost.database.jobs
    await jobs.enqueue(Job("any", "1"))
    between.cut_next()

    taken = await jobs.claim(JobClaim("worker", lease_seconds=30, kinds=["any"]))

    assert between.cuts == 1
    assert taken is not None


async def test_deliveries_whose_claim_was_not_heard_are_claimed_once_each(
    conversation_lost: Conversation, between: DatabaseWire, database_url: str
) -> None:
    outbox = slack_database(conversation_lost.database, "assistant").outbox
    for thread in ("1", "2"):
        await run_sql(database_url, NOTICE, thread)
    between.cut_next()

    deliveries = await outbox.claim(DeliveryClaim("worker", limit=9, lease_seconds=30))

    assert between.cuts == 1
    assert [delivery.thread_ts for delivery in deliveries] == ["1", "2"]
    assert len(await outbox.renew([delivery.lease for delivery in deliveries], 30)) == 2


async def test_a_summary_whose_adoption_was_not_heard_is_adopted_once(
    conversation_lost: Conversation, between: DatabaseWire
) -> None:
    messages = await conversation_lost.say("one", "two", "three", "four")
    adoption = await conversation_lost.adoption(messages[1])
    between.cut_next()

    session = await conversation_lost.database.summaries.adopt_summary(adoption)

    assert between.cuts == 1
    assert (session.summary_version, session.summary_through_position) == (1, 2)


async def test_a_database_that_never_answers_is_told_so_in_the_end(
    conversation_lost: Conversation, between: DatabaseWire, database_url: str
) -> None:
    between.cut_next(100)

    with pytest.raises(DatabaseUnavailable):
        await conversation_lost.submit("Hello")

    between.cut_next(0)
    assert await number_of(database_url, "runs") == 1
