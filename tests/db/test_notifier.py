"""The notifier: notifications reach all who wait, in each process, and come back after a lost connection."""

import asyncio
from collections.abc import AsyncGenerator
from uuid import UUID

import pytest

from fakes.conversations import Conversation, open_conversation
from fakes.event_log import MESSAGE_ID
from fakes.pooler import urls_of
from fakes.raw_sql import BACKENDS, run_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.notifier import MOST_KEPT, Notification, RunSignal, read_payload, write_payloads
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.basic_types import RunId
from throughline.domain.events import AnswerReset, MessageDelta, NewEvent, RunEvent
from throughline.domain.run import Outcome, RunStatus


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


@pytest.fixture
async def elsewhere(database_url: str) -> AsyncGenerator[Database]:
    """Another process's view of the same database."""
    opened = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=1))
    yield opened
    await opened.close()


async def test_a_reader_elsewhere_is_woken_by_new_events(conversation: Conversation, elsewhere: Database) -> None:
    claimed = await conversation.start()

    async with elsewhere.notifier.subscribe(claimed.run.id) as signal, asyncio.timeout(HANG_SECONDS):
        await conversation.database.events.append_events(claimed.lease, [NewEvent(1, AnswerReset(1))])
        await signal.wait(HANG_SECONDS * 2)

    assert len(await elsewhere.events.read_events(claimed.run.id, 0)) == 1


@pytest.mark.parametrize("is_here", [True, False])
async def test_who_waits_for_the_end_is_woken_by_nothing_before_it(
    conversation: Conversation, elsewhere: Database, *, is_here: bool
) -> None:
    claimed = await conversation.start()
    notifier = conversation.database.notifier if is_here else elsewhere.notifier

    async with (
        notifier.subscribe(claimed.run.id) as of_events,
        notifier.subscribe(claimed.run.id, ends_only=True) as of_end,
        asyncio.timeout(HANG_SECONDS),
    ):
        await conversation.database.events.append_events(claimed.lease, [NewEvent(1, AnswerReset(1))])
        await of_events.wait(HANG_SECONDS * 2)
        before = of_end.times
        await conversation.database.runs.finish(claimed.lease, Outcome(RunStatus.SUCCEEDED), (), 2)
        ended = await of_end.wait(HANG_SECONDS * 2)

    assert (before, ended) == (0, True)


async def test_a_reader_here_is_woken_without_the_database(conversation: Conversation) -> None:
    run_id = RunId(UUID(int=7))

    async with conversation.database.notifier.subscribe(run_id) as signal, asyncio.timeout(HANG_SECONDS):
        conversation.database.notifier.announce_events(run_id)
        assert await signal.wait(HANG_SECONDS * 2)


async def test_claim_loops_everywhere_are_woken_by_a_waiting_run(
    conversation: Conversation, elsewhere: Database
) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        await conversation.submit()
        assert await conversation.database.notifier.work.wait(HANG_SECONDS * 2)
        assert await elsewhere.notifier.work.wait(HANG_SECONDS * 2)


async def test_the_holder_of_a_run_learns_of_a_cancel_elsewhere(
    conversation: Conversation, elsewhere: Database
) -> None:
    claimed = await conversation.start()
    heard: asyncio.Queue[RunId] = asyncio.Queue()
    conversation.database.notifier.on_cancel(heard.put_nowait)

    await elsewhere.runs.request_cancel(conversation.owner_id, claimed.run.id)

    async with asyncio.timeout(HANG_SECONDS):
        assert await heard.get() == claimed.run.id


async def test_a_killed_connection_comes_back_and_wakes_everybody(
    conversation: Conversation, elsewhere: Database, database_url: str
) -> None:
    kill = f"select pg_terminate_backend(pid) from {BACKENDS} where application_name = 'throughline listener'"

    async with elsewhere.notifier.subscribe(RunId(UUID(int=1))) as signal, asyncio.timeout(HANG_SECONDS):
        await run_sql(database_url, kill)
        await signal.wait(HANG_SECONDS * 2)

    assert elsewhere.notifier.is_listening
    claimed = await conversation.start()
    async with elsewhere.notifier.subscribe(claimed.run.id) as signal, asyncio.timeout(HANG_SECONDS):
        while not await elsewhere.events.read_events(claimed.run.id, 0):
            if conversation.database.notifier.is_listening:
                await conversation.database.events.append_events(claimed.lease, [NewEvent(1, AnswerReset(1))])
            await signal.wait(0.05)


async def test_a_wait_ends_after_its_timeout_without_news(database: Database) -> None:
    async with database.notifier.subscribe(RunId(UUID(int=1))) as signal, asyncio.timeout(HANG_SECONDS):
        assert not await signal.wait(0.01)


async def test_news_between_two_waits_is_not_missed(database: Database) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        database.notifier.work.wake()
        assert await database.notifier.work.wait(HANG_SECONDS * 2)


def test_payloads_carry_everything_and_never_exceed_postgres_limit() -> None:
    notification = Notification(
        events=frozenset(RunId(UUID(int=n)) for n in range(1000)),
        cancels=frozenset({RunId(UUID(int=2**127))}),
        has_work=True,
        ends=frozenset(RunId(UUID(int=n)) for n in range(500, 1000)),
    )

    payloads = write_payloads(notification)

    assert all(len(payload.encode()) < 8000 for payload in payloads)
    read = [read_payload(payload) for payload in payloads]
    assert frozenset().union(*(one.events for one in read)) == notification.events
    assert frozenset().union(*(one.ends for one in read)) == notification.ends
    assert frozenset().union(*(one.cancels for one in read)) == notification.cancels
    assert any(one.has_work for one in read)


@pytest.mark.parametrize("payload", ["", "x", "e:zz", "q:00", "e", "::", "e:1,2"])
def test_a_payload_of_somebody_else_is_no_news(payload: str) -> None:
    assert read_payload(payload) == Notification()


def event(seq: int) -> RunEvent:
    return RunEvent(RunId(UUID(int=1)), seq, MessageDelta(MESSAGE_ID, str(seq)))


def test_events_brought_with_the_news_are_taken_once_and_only_without_a_gap() -> None:
    signal = RunSignal()

    signal.bring([event(1), event(2)])
    first = signal.after(0)
    again = signal.after(0)
    signal.bring([event(4)])
    after_a_gap = signal.after(2)

    assert [taken.seq for taken in first] == [1, 2]
    assert again == ()
    assert after_a_gap == ()


def test_a_slow_reader_is_sent_back_to_the_table_and_costs_no_memory() -> None:
    signal = RunSignal()

    for seq in range(1, 2000):
        signal.bring([event(seq)])

    assert len(signal.after(0)) <= MOST_KEPT
