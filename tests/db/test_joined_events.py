"""Events of several runs in one statement: none waits for another run, is lost, or fails because of another run."""

import asyncio
from collections.abc import Collection, Mapping
from uuid import UUID

import pytest

from fakes.conversations import open_conversation
from fakes.event_log import MESSAGE_ID
from fakes.raw_sql import WAITING, hold_rows, until_sql
from fakes.waiting import until
from throughline.db.database import Database
from throughline.db.runs.joined_events import MOST_JOINED, EventBatch, JoinedEvents, StoreResult
from throughline.domain.basic_types import RunId, SessionId
from throughline.domain.errors import DatabaseUnavailable, InvalidInput, LeaseLost
from throughline.domain.events import MessageDelta, NewEvent
from throughline.domain.run import Lease

SESSION = SessionId(UUID(int=1))


def events_of(number: int, *, seq: int = 1) -> EventBatch:
    """Return an event of the run with this number."""
    return EventBatch(Lease(RunId(UUID(int=number)), 1, SESSION), (NewEvent(seq, MessageDelta(MESSAGE_ID, "word")),))


class Written:
    """What was written, as the numbers of the runs of each statement, and whether it waited for locks."""

    def __init__(self) -> None:
        self.statements: list[tuple[list[int], bool]] = []
        self.locked: set[int] = set()
        self.lost: set[int] = set()
        self.failures: dict[int, Exception] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, batches: Collection[EventBatch], *, waits: bool) -> Mapping[Lease, StoreResult]:
        numbers = [batch.lease.run_id.int for batch in batches]
        self.statements.append((numbers, waits))
        await self.gate.wait()
        for number in numbers:
            if number in self.failures:
                raise self.failures[number]
        return {batch.lease: self._result(batch.lease.run_id.int, waits=waits) for batch in batches}

    def _result(self, number: int, *, waits: bool) -> StoreResult:
        if number in self.lost:
            return StoreResult.LOST
        return StoreResult.LOCKED if number in self.locked and not waits else StoreResult.STORED


async def test_events_given_at_the_same_time_are_stored_in_one_statement() -> None:
    written = Written()
    joined = JoinedEvents(written)

    results = await asyncio.gather(*(joined.store(events_of(number)) for number in range(5)))

    assert results == [StoreResult.STORED] * 5
    assert written.statements == [([0, 1, 2, 3, 4], False)]


async def test_events_given_while_a_statement_is_under_way_share_the_next_one() -> None:
    written = Written()
    written.gate.clear()
    joined = JoinedEvents(written)

    first = asyncio.create_task(joined.store(events_of(0)))
    await until(lambda: bool(written.statements))
    others = [asyncio.create_task(joined.store(events_of(number))) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    written.gate.set()
    await asyncio.gather(first, *others)

    assert written.statements == [([0], False), ([1, 2, 3], False)]


async def test_a_run_whose_row_is_locked_is_stored_alone_and_delays_no_other() -> None:
    written = Written()
    written.locked = {1}

    results = await asyncio.gather(*map(JoinedEvents(written).store, [events_of(0), events_of(1), events_of(2)]))

    assert results == [StoreResult.STORED] * 3
    assert written.statements == [([0, 1, 2], False), ([1], True)]


async def test_events_given_while_a_single_locked_run_waits_are_stored_meanwhile(
    database: Database, database_url: str
) -> None:
    claims = [await (await open_conversation(database)).start() for _ in range(2)]
    event = NewEvent(1, MessageDelta(MESSAGE_ID, "word"))

    async with hold_rows(database_url, f"select 1 from runs where id = '{claims[0].run.id}' for update"):
        locked = asyncio.create_task(database.events.append_events(claims[0].lease, [event]))
        await until_sql(database_url, WAITING)
        await database.events.append_events(claims[1].lease, [event])
        was_locked = not locked.done()
    await locked

    assert was_locked


async def test_a_run_that_cannot_be_stored_fails_alone() -> None:
    written = Written()
    written.failures = {1: InvalidInput("a value that no column takes")}
    written.lost = {2}
    joined = JoinedEvents(written)

    results = await asyncio.gather(*(joined.store(events_of(number)) for number in range(4)), return_exceptions=True)

    assert results == [StoreResult.STORED, written.failures[1], StoreResult.LOST, StoreResult.STORED]


async def test_an_outage_fails_all_and_is_not_tried_for_each_run() -> None:
    written = Written()
    written.failures = {1: DatabaseUnavailable("away")}
    joined = JoinedEvents(written)

    results = await asyncio.gather(*(joined.store(events_of(number)) for number in range(3)), return_exceptions=True)

    assert results == [written.failures[1]] * 3
    assert len(written.statements) == 1


async def test_events_of_one_run_go_into_two_statements_in_their_order() -> None:
    written = Written()
    joined = JoinedEvents(written)

    await asyncio.gather(*(joined.store(events_of(number, seq=seq)) for seq, number in enumerate([0, 1, 0])))

    assert written.statements == [([0, 1], False), ([0], False)]


async def test_one_statement_stores_a_bounded_number_of_runs() -> None:
    written = Written()
    joined = JoinedEvents(written)

    await asyncio.gather(*(joined.store(events_of(number)) for number in range(MOST_JOINED + 2)))

    assert [len(numbers) for numbers, _ in written.statements] == [MOST_JOINED, 2]


async def test_events_whose_writer_was_cancelled_break_nothing() -> None:
    written = Written()
    joined = JoinedEvents(written)

    cancelled = asyncio.create_task(joined.store(events_of(0)))
    other = asyncio.create_task(joined.store(events_of(1)))
    await asyncio.sleep(0)
    cancelled.cancel()

    assert await other is StoreResult.STORED
    assert cancelled.cancelled()


async def test_runs_are_stored_past_one_that_is_locked_and_one_that_is_lost(
    database: Database, database_url: str
) -> None:
    claims = [await (await open_conversation(database)).start() for _ in range(4)]
    await database.runs.give_back(claims[1].lease)
    event = NewEvent(1, MessageDelta(MESSAGE_ID, "word"))

    async with hold_rows(database_url, f"select 1 from runs where id = '{claims[2].run.id}' for update"):
        stores = [asyncio.create_task(database.events.append_events(claim.lease, [event])) for claim in claims]
        await asyncio.wait({stores[0], stores[1], stores[3]})
        was_locked = not stores[2].done()
    await stores[2]

    with pytest.raises(LeaseLost):
        await stores[1]
    stored = [await database.events.read_events(claim.run.id, 0) for claim in claims]
    assert was_locked
    assert [[one.event == event.event for one in read] for read in stored] == [[True], [False], [True], [True]]
