"""What a user said is kept, also where its run was cancelled before anybody read it: where its turn would have been."""

import asyncio
import ssl
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest

from fakes.conversations import (
    BEHIND_ALL,
    CLAIMER,
    Conversation,
    answer_message,
    claim_next,
    is_loaded_whole,
    open_conversation,
    user_message,
)
from fakes.database_wire import DatabaseWire, database_wire
from fakes.pooler import shared_address, urls_of
from fakes.programs import environment_for_programs
from fakes.raw_sql import BACKENDS, hold_rows, run_sql, until_sql
from fakes.run_folder import FOLDER, shared
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.address import DatabaseUrls
from throughline.db.connection.failures import explain
from throughline.db.connection.migrations import status
from throughline.db.connection.pool import BEGIN_LIMITED, ConnectionPool, PoolConfig, Row, Statement, statement
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.runs.cancel import withdraw
from throughline.db.runs.finish import PORTION, PORTION_BYTES, Ending, finish
from throughline.db.sessions.import_messages import Imported, import_session
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable, QueueFull
from throughline.domain.message import Message, NewMessage, Source, text_of
from throughline.domain.run import Caps, Outcome, RunError, RunStatus

CAPS = Caps()


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [text_of(message.content) for message in messages]


def answered(answer: NewMessage) -> Outcome:
    return Outcome(RunStatus.SUCCEEDED, answer=answer)


async def cancel_waiting(conversation: Conversation, *said: str) -> None:
    runs = [(await conversation.submit(text)).run for text in said]
    for run in runs:
        cancelled = await conversation.database.runs.request_cancel(conversation.owner_id, run.id)
        assert cancelled.status is RunStatus.CANCELLED


async def test_a_message_that_no_worker_took_is_kept_when_it_is_cancelled(conversation: Conversation) -> None:
    await cancel_waiting(conversation, "anybody there?")

    (kept,) = await conversation.messages()
    assert (text_of(kept.content), kept.role.value, kept.position) == ("anybody there?", "user", 1)


async def test_a_message_cancelled_behind_a_running_turn_comes_to_stand_behind_that_turn(
    conversation: Conversation,
) -> None:
    claimed = await conversation.start("first")
    await conversation.database.messages.append_message(claimed.lease, "user", user_message("first"))
    await cancel_waiting(conversation, "second", "third")
    while_it_runs = texts(await conversation.messages())

    await conversation.end(claimed.lease, "answer")
    await conversation.say("fourth")

    assert while_it_runs == ["first"]
    assert texts(await conversation.messages()) == ["first", "answer", "second", "third", "fourth"]


async def test_a_message_cancelled_between_two_that_wait_keeps_its_place(conversation: Conversation) -> None:
    claimed = await conversation.start("first")
    runs = [(await conversation.submit(text)).run for text in ("second", "third")]
    last = (await conversation.submit("fourth")).run
    await conversation.database.runs.request_cancel(conversation.owner_id, runs[1].id)
    await conversation.end(claimed.lease, "one")

    following = await claim_next(conversation.database.runs, CLAIMER)
    assert following is not None
    await conversation.database.messages.append_message(following.lease, "user", user_message("second"))
    before_its_end = texts(await conversation.messages())
    await conversation.end(following.lease, "two")
    await conversation.database.runs.request_cancel(conversation.owner_id, last.id)

    assert before_its_end == ["one", "second"]
    assert texts(await conversation.messages()) == ["one", "second", "two", "third", "fourth"]


async def test_cancelling_while_the_turn_before_ends_loses_no_message(conversation: Conversation) -> None:
    for _ in range(20):
        claimed = await conversation.start("first")
        waiting = (await conversation.submit("second")).run
        await asyncio.gather(
            conversation.end(claimed.lease, "answer"),
            conversation.database.runs.request_cancel(conversation.owner_id, waiting.id),
        )

    assert texts(await conversation.messages()) == ["answer", "second"] * 20


async def test_cancelling_twice_keeps_the_message_once(conversation: Conversation) -> None:
    run = (await conversation.submit("once")).run

    await asyncio.gather(*(conversation.database.runs.request_cancel(conversation.owner_id, run.id) for _ in range(5)))

    assert texts(await conversation.messages()) == ["once"]


async def test_a_run_whose_answer_was_stored_is_not_touched_by_messages_that_are_due(
    conversation: Conversation,
) -> None:
    claimed = await conversation.start("first")
    await cancel_waiting(conversation, "second")
    answer = answer_message("answer")

    run = await conversation.database.runs.finish(claimed.lease, answered(answer), (), BEHIND_ALL)

    stored = await conversation.messages()
    assert run.message_id == stored[0].id
    assert (await conversation.reload()).message_count == len(stored) == 2


@pytest.fixture
async def transactions(database_url: str) -> AsyncGenerator[Transactions]:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=HANG_SECONDS))
    yield Transactions(pool)
    await pool.close()


class CountedStatements:
    """Hands statements on, counts them, and measures the largest of their values."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self.number = 0
        self.largest = 0

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        self.number += 1
        self.largest = max(self.largest, *(len(str(value)) for value in parameters.values()))
        return await self._statements.fetch(statement, **parameters)


async def test_however_many_messages_are_due_a_few_statements_append_them(
    database_url: str, transactions: Transactions
) -> None:
    many, caps = 2 * PORTION + 1, Caps(queued_per_session=1_000)
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=2, caps=caps))
    conversation = await open_conversation(database)
    claimed = await conversation.start("first")
    await cancel_waiting(conversation, *(f"message {number}" for number in range(many)))

    async def end(tx: Statements) -> int:
        counted = CountedStatements(tx)
        await finish(counted, Ending(claimed.lease, answered(answer_message("answer")), (), BEHIND_ALL))
        return counted.number

    statements = await transactions.run(end)

    stored, session = await conversation.messages(), await conversation.reload()
    assert statements <= 11
    assert texts(stored) == ["answer", *(f"message {number}" for number in range(many))]
    assert [message.position for message in stored] == list(range(1, many + 2))
    assert session.message_count == many + 1
    counts = "select skipped_run_count, message_tokens from sessions"
    assert await run_sql(database_url, counts) == [(0, sum(message.token_count for message in stored))]
    await database.close()


async def test_a_message_deleted_before_it_was_read_lets_those_behind_it_take_their_place(
    conversation: Conversation, transactions: Transactions
) -> None:
    first = (await conversation.submit("first")).run
    await cancel_waiting(conversation, "second")

    await transactions.run(lambda tx: withdraw(tx, conversation.owner_id, first.id))

    assert texts(await conversation.messages()) == ["second"]


async def test_kept_messages_have_a_size_so_that_loading_can_leave_them_out(conversation: Conversation) -> None:
    for _ in range(4):
        await cancel_waiting(conversation, *["word " * 2_000] * 10)
    claimed = await conversation.start()

    loaded = await conversation.database.messages.load_context(conversation.session.id, claimed.run.id, 3_000)

    assert len(await conversation.messages()) == 40
    assert len(loaded.history) < 40
    assert not is_loaded_whole(loaded)


async def test_messages_that_wait_for_their_place_count_as_waiting(conversation: Conversation) -> None:
    await conversation.start()
    for number in range(CAPS.queued_per_session):
        await cancel_waiting(conversation, f"never mind {number}")

    with pytest.raises(QueueFull):
        await conversation.submit("one more")


async def test_a_run_with_its_message_stored_is_not_counted_when_cancelled_in_the_line(
    conversation: Conversation, database_url: str
) -> None:
    claimed = await conversation.start("first")
    await conversation.database.messages.append_message(claimed.lease, "user", user_message("first"))
    await conversation.database.runs.give_back(claimed.lease)

    await conversation.database.runs.request_cancel(conversation.owner_id, claimed.run.id)

    assert texts(await conversation.messages()) == ["first"]
    assert await run_sql(database_url, "select skipped_run_count from sessions") == [(0,)]


async def test_a_session_whose_turn_could_only_be_failed_takes_messages_again(
    conversation: Conversation,
) -> None:
    claimed = await conversation.start("first")
    await cancel_waiting(conversation, *(f"never mind {n}" for n in range(CAPS.queued_per_session)))
    await conversation.database.runs.fail(claimed.lease, RunError("internal_error", "not stored"))

    submitted = await conversation.submit("hello again")

    assert not submitted.run.status.is_final
    assert texts(await conversation.messages()) == [f"never mind {n}" for n in range(CAPS.queued_per_session)]


async def test_messages_that_are_due_count_as_waiting_where_one_more_is_refused(conversation: Conversation) -> None:
    await conversation.start("first")
    await cancel_waiting(conversation, *(f"never mind {n}" for n in range(CAPS.queued_per_session)))

    with pytest.raises(QueueFull) as refused:
        await conversation.submit("one more")

    assert refused.value.cap == "max_queued_per_session"


async def test_long_messages_that_are_due_are_appended_a_few_megabytes_at_a_time(
    conversation: Conversation, transactions: Transactions
) -> None:
    claimed = await conversation.start("first")
    said = [letter * (PORTION_BYTES * 2 // 3) for letter in "abcd"]
    await cancel_waiting(conversation, *said)
    largest = 0

    async def end(tx: Statements) -> None:
        nonlocal largest
        counted = CountedStatements(tx)
        await finish(counted, Ending(claimed.lease, answered(answer_message("answer")), (), BEHIND_ALL))
        largest = counted.largest

    await transactions.run(end)

    assert texts(await conversation.messages()) == ["answer", *said]
    assert largest < 2 * PORTION_BYTES


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


@pytest.mark.calm("it counts statements")
async def test_a_prepared_statement_costs_one_round_trip(database_url: str) -> None:
    async with database_wire(database_url) as wire:
        statements = await asked(wire)

    assert statements == [ONE.text, "begin", ONE.text, ONE.text, "commit"]
    assert wire.round_trips == 5


@pytest.mark.calm("it lists all statements")
async def test_behind_a_pooler_each_statement_stands_in_a_transaction_that_sets_its_limits(database_url: str) -> None:
    async with database_wire(database_url) as wire:
        statements = await asked(wire, direct_url=database_url)

    assert statements == [BEGIN_LIMITED, ONE.text, "commit", BEGIN_LIMITED, ONE.text, ONE.text, "commit"]
    settings = ("statement_timeout = '7s'", "jit = 'off'", "enable_mergejoin = 'off'")
    assert all(f"set local {setting}" in BEGIN_LIMITED for setting in settings)


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
