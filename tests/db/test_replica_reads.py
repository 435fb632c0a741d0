"""Reads that a replica may answer: how old its data is told, and when the primary answers instead."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from asyncpg import QueryCanceledError  # type: ignore[import-untyped]  # ships no types
from structlog.testing import capture_logs

from fakes.conversations import Conversation, open_conversation
from fakes.pretended_standby import PretendedStandby
from fakes.raw_sql import run_sql
from fakes.replicas import ReplicaProcess, opened
from fakes.waiting import ManualClock
from throughline.assembly import serve_processes
from throughline.assembly.serve_processes import check_replica_connections
from throughline.db.connection.address import Address, parse_address
from throughline.db.connection.migrations import upgrade
from throughline.db.connection.replica import (
    AGAIN_SECONDS,
    QUIET,
    Replica,
    ReplicaConfig,
    ReplicaRefused,
    ReplicaTransactions,
    replica_address,
)
from throughline.db.connection.transactions import Statements
from throughline.db.database import ConnectionLimit, Database, DatabaseConfig
from throughline.db.reads import Reading, ReadRepositories
from throughline.db.service_status import read_service_status
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import Page, SessionId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.message import Message
from throughline.domain.recall import HistoryQuery
from throughline.domain.replica import ReplicaAge, older_of

pytestmark = [
    pytest.mark.unpooled("the database's search path is that of the pooler's connections"),
    pytest.mark.calm("a conflict leaves the answer to the primary"),
]
TODAY = datetime(2026, 1, 1, tzinfo=UTC).date()


@pytest.fixture
async def conversation(process: ReplicaProcess) -> Conversation:
    return await open_conversation(process.database)


async def texts(reading: Reading, conversation: Conversation) -> list[str]:
    """Return the messages of the session."""

    async def read(each: ReadRepositories) -> tuple[Message, ...]:
        found = await each.messages.list_messages(conversation.owner_id, conversation.session.id, MessageQuery())
        return found.items

    return [str(message.content) for message in await reading.run(read)]


@asynccontextmanager
async def other_database(url: str, conversation: Conversation, *, is_copy: bool) -> AsyncGenerator[str]:
    """Yield an address of a database without sessions; a copy has the first user."""
    await upgrade(url)
    owner = conversation.owner_id if is_copy else conversation.session.id
    await run_sql(url, "insert into users (id, name) values ($1, 'anna')", owner)
    await store_heartbeat(url, "0 seconds")
    yield url


async def store_heartbeat(url: str, age: str) -> None:
    """Store the heartbeat of a process, which is so old, in PostgreSQL's words."""
    await run_sql(
        url,
        """
            insert into processes values (
                gen_random_uuid(), 'serve', 'one', '1', now(), now() - cast($1::text as interval), 1, 0, 0, true, true)
        """,
        age,
    )


async def test_a_replica_answers_and_says_until_when_its_data_is_complete(
    process: ReplicaProcess, conversation: Conversation
) -> None:
    await conversation.say("Hello")
    reading = process.begin()
    before = datetime.now(UTC)

    found = await texts(reading, conversation)

    age = reading.tell_age()
    assert found == ["Hello"]
    assert age is not None
    assert age.as_of is not None
    assert timedelta(seconds=1) < before - age.as_of < timedelta(seconds=3)
    assert process.reads == {"answers": 1}


async def test_without_a_replica_nothing_changes(database: Database) -> None:
    conversation = await open_conversation(database)
    reading = database.reads.begin()

    assert await texts(reading, conversation) == []
    assert not reading.asks_replica
    assert reading.tell_age() is None
    assert database.reads.report() is None


@pytest.mark.parametrize("age", [None, "1 hour"])
async def test_a_copy_that_is_no_standby_is_never_taken_for_the_primary(database_url: str, age: str | None) -> None:
    if age is not None:
        await store_heartbeat(database_url, age)
    async with opened(database_url, database_url) as process:
        await texts(process.begin(), await open_conversation(process.database))

        assert process.reads == {"late": 1}


async def test_a_primary_at_the_read_address_is_current(database_url: str) -> None:
    await store_heartbeat(database_url, "0 seconds")
    async with opened(database_url, database_url) as process:
        conversation = await open_conversation(process.database)
        reading = process.begin()

        assert await texts(reading, conversation) == []
        assert reading.tell_age() is None
        assert process.reads == {"answers": 1}


@pytest.mark.parametrize("reason", ["replays nothing", "lacks functions"])
async def test_an_age_that_is_not_known_is_never_guessed(
    process: ReplicaProcess, conversation: Conversation, standby: PretendedStandby, reason: str
) -> None:
    if reason == "lacks functions":
        await standby.remove_functions()
    else:
        await standby.set_lag(None)
        await standby.set("is_replaying", value=False)
    reading = process.begin()

    assert await texts(reading, conversation) == []
    assert reading.tell_age() == ReplicaAge(None)
    assert process.reads == {"answers": 1}


@pytest.mark.parametrize("age", ["31 seconds", None])
async def test_a_replica_that_lags_too_much_is_left_alone(
    process: ReplicaProcess, conversation: Conversation, standby: PretendedStandby, age: str | None
) -> None:
    await standby.set_lag(age)

    with capture_logs() as logs:
        for _ in range(3):
            reading = process.begin()
            assert await texts(reading, conversation) == []
            assert reading.tell_age() is None

    assert process.reads == {"late": 3}
    assert [(line["event"], line["reason"]) for line in logs] == [("replica not used", "late")]
    report = process.database.reads.report()
    assert report is not None
    assert (report.state, report.is_refused) == ("late", True)


async def test_a_replica_that_is_away_costs_nobody_an_answer(database_url: str) -> None:
    async with opened(database_url, "postgresql://nobody@127.0.0.1:1/none") as process:
        conversation = await open_conversation(process.database)
        with capture_logs() as logs:
            found = [await texts(process.begin(), conversation) for _ in range(2)]

        assert found == [[], []]
        assert process.reads == {"away": 2}
        assert [line["place"] for line in logs] == ["127.0.0.1:1"]


async def test_what_a_replica_lacks_the_primary_answers(
    database_url: str, empty_database_url: str, conversation: Conversation
) -> None:
    await conversation.say("Hello")
    async with (
        other_database(empty_database_url, conversation, is_copy=True) as read_url,
        opened(database_url, read_url) as process,
    ):
        reading = process.begin()

        assert await texts(reading, conversation) == ["Hello"]
        assert not reading.asks_replica
        assert process.reads == {"missing": 1}


async def test_errors_are_those_of_the_primary(process: ReplicaProcess, conversation: Conversation) -> None:
    async def read_missing(each: ReadRepositories) -> object:
        return await each.sessions.get(conversation.owner_id, SessionId(UUID(int=1)))

    async def read_wrong(each: ReadRepositories) -> object:
        each.history.parse(HistoryQuery("before:never", 5, today=TODAY))
        return None

    with pytest.raises(NotFound):
        await process.begin().run(read_missing)
    with pytest.raises(InvalidInput):
        await process.begin().run(read_wrong)

    assert process.reads == {"missing": 2}


async def test_another_database_is_never_read(
    database_url: str, empty_database_url: str, conversation: Conversation
) -> None:
    async with (
        other_database(empty_database_url, conversation, is_copy=False) as read_url,
        opened(database_url, read_url) as process,
    ):
        await texts(process.begin(), conversation)

        assert process.reads == {"foreign": 1}


async def test_a_replica_with_an_older_schema_is_not_read(
    database_url: str, empty_database_url: str, conversation: Conversation
) -> None:
    async with opened(database_url, empty_database_url) as process:
        await texts(process.begin(), conversation)
        assert process.reads == {"schema": 1}
    async with (
        other_database(empty_database_url, conversation, is_copy=True) as read_url,
        opened(database_url, read_url) as process,
    ):
        await run_sql(read_url, "update alembic_version set version_num = '0047'")
        await texts(process.begin(), conversation)
        assert process.reads == {"schema": 1}


async def test_a_query_cancelled_by_recovery_is_answered_by_the_primary(
    process: ReplicaProcess, conversation: Conversation, standby: PretendedStandby
) -> None:
    await run_sql(
        standby.url,
        """
            create function pretended.clock_timestamp() returns timestamptz language plpgsql
                as $$begin raise 'canceling statement due to conflict with recovery' using errcode = '40001'; end$$
        """,
    )

    assert await texts(process.begin(), conversation) == []
    assert await texts(process.begin(), conversation) == []

    assert process.reads == {"conflict": 2}  # it is asked again at once


async def test_a_transaction_there_cannot_write(replica: Replica) -> None:
    async with replica.pool.connection() as connection:
        await connection.execute(replica.pool.begin)
        found = [await connection.fetchval(f"show {name}") for name in ("transaction_read_only", "statement_timeout")]
        await connection.execute("rollback")

    assert found == ["on", "7s"]


async def test_later_reads_of_an_answer_are_not_older_than_told(
    process: ReplicaProcess, conversation: Conversation, standby: PretendedStandby
) -> None:
    await conversation.say("Hello")
    reading = process.begin()
    await texts(reading, conversation)
    told = reading.tell_age()
    await standby.set_lag("20 seconds")

    assert await texts(reading, conversation) == ["Hello"]
    assert reading.tell_age() == told
    assert process.reads == {"answers": 1, "older": 1}
    assert not reading.asks_replica


async def test_after_a_failure_the_primary_goes_on_where_the_replica_stopped(
    process: ReplicaProcess, conversation: Conversation, standby: PretendedStandby
) -> None:
    await conversation.say("one", "two", "three")
    reading = process.begin()

    async def read(each: ReadRepositories, after: int | None) -> Page[Message]:
        query = MessageQuery(after=after, limit=2)
        return await each.messages.list_messages(conversation.owner_id, conversation.session.id, query)

    first = await reading.run(lambda each: read(each, None))
    await standby.set_lag("1 hour")
    second = await reading.run(lambda each: read(each, int(first.next_cursor or 0)))

    assert [message.content for message in (*first.items, *second.items)] == ["one", "two", "three"]
    assert process.reads == {"answers": 1, "late": 1}


def test_the_older_of_two_ages_counts() -> None:
    early, late = (ReplicaAge(datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 2))
    unknown = ReplicaAge(None)

    assert older_of(early, late) == older_of(late, early) == early
    assert older_of(None, late) == older_of(late, None) == late
    assert older_of(early, unknown) == older_of(unknown, None) == unknown
    assert older_of(None, None) is None


async def test_the_status_tells_of_the_replica(process: ReplicaProcess, standby: PretendedStandby) -> None:
    await open_conversation(process.database)
    config = ReplicaConfig(standby.url, 30.0)

    found = await read_service_status(standby.url, (), config)
    await standby.set_lag("1 hour")
    late = await read_service_status(standby.url, (), config)

    assert found.replica is not None
    assert found.replica.state == "answers"
    assert found.replica.as_of is not None
    assert late.replica is not None
    assert (late.replica.state, late.replica.is_refused) == ("late", True)
    assert (await read_service_status(standby.url)).replica is None
    assert process.reads == {}


@pytest.fixture
async def replica(process: ReplicaProcess, standby: PretendedStandby, clock: ManualClock) -> AsyncGenerator[Replica]:
    made = Replica(ReplicaConfig(standby.url, 30.0), process.database.access.transactions, clock.monotonic)
    yield made
    await made.pool.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.mark.parametrize(("error", "reason"), [(LookupError("latin9"), "away"), (QueryCanceledError(), "away")])
async def test_whatever_fails_at_a_replica_is_left_to_the_primary(
    replica: Replica, error: Exception, reason: str
) -> None:
    async def fail(_: Statements) -> None:
        raise error

    with pytest.raises(ReplicaRefused) as refused:
        await ReplicaTransactions(replica, lambda _: None).run(fail)

    assert refused.value.reason == reason


async def test_a_replica_that_is_well_again_is_asked_at_once(replica: Replica, clock: ManualClock) -> None:
    async def fail(_: Statements) -> None:
        raise NotFound("no such session")

    replica.note_refusal("away")
    clock.advance(AGAIN_SECONDS)
    asked = [replica.may_ask()]
    with pytest.raises(NotFound):
        await ReplicaTransactions(replica, lambda _: None).run(fail)
    asked.append(replica.may_ask())

    assert asked == [True, True]


@pytest.mark.parametrize(
    ("reason", "then"),
    [(reason, [True, False]) for reason in (*sorted(QUIET), "conflict")] + [("busy", [False, False])],
)
async def test_after_a_read_that_never_reached_the_replica_one_read_asks_it(
    replica: Replica, clock: ManualClock, reason: str, then: list[bool]
) -> None:
    replica.note_refusal("away")
    clock.advance(AGAIN_SECONDS)
    asked = [replica.may_ask()]
    replica.note_refusal(reason)
    asked += [replica.may_ask(), replica.may_ask()]

    assert asked == [True, *then]


async def test_while_a_read_is_not_answered_the_others_do_not_wait_for_it(replica: Replica, clock: ManualClock) -> None:
    asked: list[bool] = []

    async def hang(_: Statements) -> None:
        asked.append(replica.may_ask())
        raise TimeoutError

    replica.note_refusal("away")
    clock.advance(AGAIN_SECONDS)
    asked.append(replica.may_ask())
    with pytest.raises(ReplicaRefused) as refused:
        await ReplicaTransactions(replica, lambda _: None).run(hang)
    asked.append(replica.may_ask())

    assert refused.value.reason == "away"
    assert asked == [True, False, False]


async def test_a_replica_that_failed_is_asked_again_after_a_while(replica: Replica, clock: ManualClock) -> None:
    with capture_logs() as logs:
        replica.note_refusal("away")
        refused = replica.may_ask()
        clock.advance(AGAIN_SECONDS)
        asked = [replica.may_ask(), replica.may_ask()]  # one of them tries, the other does not wait for it
        replica.note_well()

    assert not refused
    assert asked == [True, False]
    assert replica.may_ask()
    assert [line["event"] for line in logs] == ["replica not used", "replica used again"]


@pytest.mark.parametrize(("hosts", "more"), [("a:1", 0), ("b:1", 4), ("a:1,b:1", 4)])
def test_connections_to_the_primary_itself_are_counted_with_its_own(hosts: str, more: int) -> None:
    config = DatabaseConfig(url="postgresql://b:1/x", pool_size=5)

    with_replica = replace(config, replica=ReplicaConfig(f"postgresql://{hosts}/x", 30.0))

    assert with_replica.server_connections == config.server_connections + more


async def test_too_few_connections_of_the_replica_are_a_warning(empty_database_url: str) -> None:
    name = parse_address(empty_database_url).url.database
    await run_sql(empty_database_url, f'alter database "{name}" connection limit 11')

    with capture_logs() as logs:
        for count in (1, 2):
            await check_replica_connections(empty_database_url, count)
        await check_replica_connections("postgresql://nobody@127.0.0.1:1/none", 1)

    assert [
        (line["event"], line.get("needed"), line.get("allowed")) for line in logs if line["log_level"] == "warning"
    ] == [
        ("replica allows too few connections", 12, 11),
        ("replica not reached", None, None),
    ]


async def test_a_replica_that_is_no_postgresql_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Address) -> ConnectionLimit:
        raise LookupError("latin9")

    monkeypatch.setattr(serve_processes, "read_connection_limit", fail)

    with capture_logs() as logs:
        await check_replica_connections("postgresql://nobody@127.0.0.1:1/none", 1)

    assert [line["event"] for line in logs] == ["replica not reached"]


@pytest.mark.parametrize(
    ("query", "attribute"),
    [
        ("a:1,b:2/x", "prefer-standby"),
        ("a:1,b:2/x?target_session_attrs=standby", "standby"),
        ("a:1/x", None),
    ],
)
def test_of_several_servers_a_standby_is_preferred(query: str, attribute: str | None) -> None:
    address = replica_address(f"postgresql://{query}")

    assert address.extra.get("target_session_attrs") == attribute
