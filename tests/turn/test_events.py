"""The event writer: numbering, joining of deltas, and what happens when the database is away."""

import asyncio

from app.domain.errors import DatabaseUnavailable
from app.domain.events import EventType
from app.turn.event_writer import EventWriter
from fakes.event_log import EventLog, claimed
from fakes.waiting import HANG_SECONDS


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

    assert [event.data for event in log.events] == [{"text": "one two three"}]


async def test_an_event_after_text_keeps_the_order_and_numbers_have_no_gap() -> None:
    log = EventLog()
    writer = EventWriter(log, claimed(next_event=5))

    writer.emit_text("text")
    writer.emit(EventType.TOOL_CALL, {"id": "c1"})
    writer.emit_text("more")
    await settled(log, 3)

    assert [(event.seq, event.type) for event in log.events] == [
        (5, EventType.MESSAGE_DELTA),
        (6, EventType.TOOL_CALL),
        (7, EventType.MESSAGE_DELTA),
    ]


async def test_a_batch_the_database_could_not_take_is_stored_later_with_the_same_numbers() -> None:
    log = EventLog()
    log.failures = [DatabaseUnavailable("away"), DatabaseUnavailable("away")]
    writer = EventWriter(log, claimed())

    writer.emit(EventType.RUN_STARTED, {})
    writer.emit_text("hello")
    await settled(log, 2)

    assert [event.seq for event in log.events] == [1, 2]


async def test_drain_returns_what_is_not_stored_and_the_last_events_follow_it() -> None:
    log = EventLog()
    writer = EventWriter(log, claimed())
    writer.emit_text("tail")

    drained = await writer.drain()
    last = writer.with_last(drained, (EventType.MESSAGE_COMPLETED, {}), (EventType.RUN_COMPLETED, {}))

    assert [(event.seq, event.type) for event in last] == [
        (1, EventType.MESSAGE_DELTA),
        (2, EventType.MESSAGE_COMPLETED),
        (3, EventType.RUN_COMPLETED),
    ]
    assert log.events == []


async def test_composing_the_last_events_twice_gives_the_same_numbers() -> None:
    writer = EventWriter(EventLog(), claimed())
    drained = await writer.drain()

    first = writer.with_last(drained, (EventType.RUN_FAILED, {}))
    second = writer.with_last(drained, (EventType.RUN_FAILED, {}))

    assert first == second


async def test_shown_text_is_what_readers_hold_since_the_last_reset() -> None:
    writer = EventWriter(EventLog(), claimed())

    writer.emit_text("wrong")
    writer.emit(EventType.RESET, {"attempt": 1})
    writer.emit_text("right")

    assert writer.shown_text == "right"
    await writer.drain()
