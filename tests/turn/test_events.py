"""The event writer: numbering, joining of deltas, and what happens when the database is away."""

import asyncio
from itertools import count
from uuid import UUID

from fakes.event_log import MESSAGE_ID, EventLog, claimed
from fakes.waiting import HANG_SECONDS
from throughline.domain import prompt
from throughline.domain.basic_types import MessageId
from throughline.domain.errors import DatabaseUnavailable
from throughline.domain.events import (
    AnswerReset,
    MessageCompleted,
    MessageDelta,
    NewEvent,
    ReasoningDelta,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.message import Message, Role, Source, ToolCall
from throughline.domain.run import ClaimedRun
from throughline.turn.event_writer import EventWriter, Unstored

CALLED = ToolCalled(ToolCall(id="c1", name="calculator", arguments="{}"), MESSAGE_ID)


def writer_of(log: EventLog, claimed_run: ClaimedRun) -> EventWriter:
    """Return a writer that takes the ids 5, 6, 7 …; the first is MESSAGE_ID."""
    return EventWriter(log, claimed_run, map(id_number, count(MESSAGE_ID.int)).__next__)


def id_number(number: int) -> MessageId:
    return MessageId(UUID(int=number))


def stored(message_id: MessageId) -> Message:
    started = claimed().run
    return Message(message_id, started.session_id, 2, Role.ASSISTANT, "right", Source.API, started.created_at)


async def settled(log: EventLog, events: int) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while len(log.events) < events:
            await asyncio.sleep(0.01)


async def test_deltas_that_wait_together_become_one_event() -> None:
    log = EventLog()
    writer = writer_of(log, claimed())

    for word in ("one ", "two ", "three"):
        writer.emit_text(word)
    await settled(log, 1)

    assert [new.event for new in log.events] == [MessageDelta(MESSAGE_ID, "one two three")]


async def test_an_event_after_text_keeps_the_order_and_numbers_have_no_gap() -> None:
    log = EventLog()
    writer = writer_of(log, claimed(next_event=5))

    writer.emit_text("text")
    writer.emit(CALLED)
    writer.emit_text("more")
    await settled(log, 3)

    assert log.events == [
        NewEvent(5, MessageDelta(MESSAGE_ID, "text")),
        NewEvent(6, CALLED),
        NewEvent(7, MessageDelta(MESSAGE_ID, "more")),
    ]


async def test_a_batch_the_database_could_not_take_is_stored_later_with_the_same_numbers() -> None:
    log = EventLog()
    log.failures = [DatabaseUnavailable("away"), DatabaseUnavailable("away")]
    writer = writer_of(log, claimed())

    writer.emit(CALLED)
    writer.emit_text("hello")
    await settled(log, 2)

    assert [event.seq for event in log.events] == [1, 2]


async def test_drain_returns_what_is_not_stored_and_the_number_that_comes_after_it() -> None:
    log = EventLog()
    writer = writer_of(log, claimed())
    writer.emit_text("tail")

    drained = await writer.drain()

    assert drained == Unstored((NewEvent(1, MessageDelta(MESSAGE_ID, "tail")),), next_seq=2)
    assert await writer.drain() == drained
    assert log.events == []


async def test_shown_text_is_what_readers_hold_since_the_last_reset() -> None:
    writer = writer_of(EventLog(), claimed())

    writer.emit_text("wrong")
    writer.emit(AnswerReset(1))
    writer.emit_text("right")

    assert writer.shown_text == "right"
    await writer.drain()


async def test_parts_after_a_reset_or_a_completed_message_have_a_new_id() -> None:
    log = EventLog()
    writer = writer_of(log, claimed())

    writer.emit_reasoning("wrong")
    writer.emit(AnswerReset(1))
    writer.emit_reasoning("I see")
    writer.emit_text("right")
    writer.emit(MessageCompleted(stored(writer.message_id)))
    writer.emit_text("next")
    events = [new.event for new in (await writer.drain()).events]

    assert events == [
        ReasoningDelta(id_number(5), "wrong"),
        AnswerReset(1),
        ReasoningDelta(id_number(6), "I see"),
        MessageDelta(id_number(6), "right"),
        MessageCompleted(stored(id_number(6))),
        MessageDelta(id_number(7), "next"),
    ]
    assert writer.message_id == id_number(7)


def piece_of(index: int, text: str) -> prompt.ToolCallDelta:
    return prompt.ToolCallDelta(index, f"c{index}", "calculator", text)


async def test_neighbouring_pieces_of_one_call_become_one_event() -> None:
    writer = writer_of(EventLog(), claimed())

    for index, text in ((0, "{"), (0, "}"), (1, "["), (1, "]"), (0, " ")):
        writer.emit_arguments(piece_of(index, text))
    writer.emit_text("so")
    events = [new.event for new in (await writer.drain()).events]

    assert events == [
        ToolCallDelta(MESSAGE_ID, 0, "c0", "calculator", "{}"),
        ToolCallDelta(MESSAGE_ID, 1, "c1", "calculator", "[]"),
        ToolCallDelta(MESSAGE_ID, 0, "c0", "calculator", " "),
        MessageDelta(MESSAGE_ID, "so"),
    ]


async def test_a_piece_of_a_call_is_taken_back_like_text() -> None:
    writer = writer_of(EventLog(), claimed())

    writer.emit_arguments(piece_of(0, "{"))
    has_shown = writer.has_shown
    writer.emit(AnswerReset(1))
    await writer.drain()

    assert (has_shown, writer.has_shown, writer.shown_text) == (True, False, "")
