"""The event writer: numbering, joining of deltas, and what happens when the database is away."""

import asyncio

from fakes.event_log import EventLog, claimed
from fakes.waiting import HANG_SECONDS
from throughline.domain.errors import DatabaseUnavailable
from throughline.domain.events import AnswerReset, MessageDelta, NewEvent, ToolCalled
from throughline.domain.message import ToolCall
from throughline.turn.event_writer import EventWriter, Unstored

CALLED = ToolCalled(ToolCall(id="c1", name="calculator", arguments="{}"))


async def settled(log: EventLog, count: int) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while len(log.events) < count:
            await asyncio.sleep(0.01)


async def test_deltas_that_wait_together_become_one_event() -> None:
    log = EventLog()
    writer = EventWriter(log, claimed())

    for word in ("one ", "two ", "three"):
        writer.emit_text(word)
    await settled(log, 1)

    assert [new.event for new in log.events] == [MessageDelta("one two three")]


async def test_an_event_after_text_keeps_the_order_and_numbers_have_no_gap() -> None:
    log = EventLog()
    writer = EventWriter(log, claimed(next_event=5))

    writer.emit_text("text")
    writer.emit(CALLED)
    writer.emit_text("more")
    await settled(log, 3)

    assert log.events == [
        NewEvent(5, MessageDelta("text")),
        NewEvent(6, CALLED),
        NewEvent(7, MessageDelta("more")),
    ]


async def test_a_batch_the_database_could_not_take_is_stored_later_with_the_same_numbers() -> None:
    log = EventLog()
    log.failures = [DatabaseUnavailable("away"), DatabaseUnavailable("away")]
    writer = EventWriter(log, claimed())

    writer.emit(CALLED)
    writer.emit_text("hello")
    await settled(log, 2)

    assert [event.seq for event in log.events] == [1, 2]


async def test_drain_returns_what_is_not_stored_and_the_number_that_comes_after_it() -> None:
    log = EventLog()
    writer = EventWriter(log, claimed())
    writer.emit_text("tail")

    drained = await writer.drain()

    assert drained == Unstored((NewEvent(1, MessageDelta("tail")),), next_seq=2)
    assert await writer.drain() == drained
    assert log.events == []


async def test_shown_text_is_what_readers_hold_since_the_last_reset() -> None:
    writer = EventWriter(EventLog(), claimed())

    writer.emit_text("wrong")
    writer.emit(AnswerReset(1))
    writer.emit_text("right")

    assert writer.shown_text == "right"
    await writer.drain()
