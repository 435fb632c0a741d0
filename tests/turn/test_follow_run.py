"""Following a run: from any process, with or without notifications, across attempts and losses."""

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import count
from typing import cast
from uuid import UUID

import pytest

from fakes.conversations import CLAIMER, Conversation, claim_next
from fakes.database_wire import database_wire
from fakes.event_log import MESSAGE_ID, EventLog, claimed
from fakes.pooler import urls_of
from fakes.raw_sql import run_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database, DatabaseConfig
from throughline.db.runs.events import STRIDE
from throughline.domain import prompt
from throughline.domain.basic_types import MessageId, RunId
from throughline.domain.errors import DatabaseUnavailable
from throughline.domain.events import (
    AnswerReset,
    MessageCompleted,
    MessageDelta,
    NewEvent,
    ReasoningDelta,
    RunEvent,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.message import Message, Role, Source, ToolCall
from throughline.domain.run import ClaimedRun, Outcome, RunStatus
from throughline.ports.storage import FollowedRuns
from throughline.turn.event_writer import EventWriter, Unstored
from throughline.turn.follow_run import Followed, Following, Idle


@pytest.fixture
async def deaf(database_url: str) -> AsyncIterator[Database]:
    """Another process that hears no item: its listening connection never comes about."""
    database = Database(DatabaseConfig(**urls_of(database_url), pool_size=2))
    yield database
    await database.close()


def delta(seq: int, text: str) -> NewEvent:
    return NewEvent(seq, MessageDelta(MESSAGE_ID, text))


async def show(conversation: Conversation, claimed: ClaimedRun, *texts: str) -> None:
    """Store one event for each text, numbered from where the claim says."""
    events = [delta(claimed.next_event + index, text) for index, text in enumerate(texts)]
    await conversation.database.events.append_events(claimed.lease, events)


async def end(conversation: Conversation, claimed: ClaimedRun, seq: int) -> None:
    await conversation.database.runs.finish(claimed.lease, Outcome(RunStatus.SUCCEEDED), (), seq)


async def claim_again(conversation: Conversation) -> ClaimedRun:
    claimed = await claim_next(conversation.database.runs, CLAIMER)
    assert claimed is not None
    return claimed


async def read(followed: AsyncIterator[Followed], seen: list[RunEvent]) -> None:
    async for item in followed:
        if not isinstance(item, Idle):
            seen.extend(item)


async def until_shown(seen: list[RunEvent], count: int) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while len(seen) < count:
            await asyncio.sleep(0.01)


async def test_without_any_news_a_reader_finds_everything_by_looking(
    conversation: Conversation, deaf: Database
) -> None:
    claimed = await conversation.start()
    seen: list[RunEvent] = []
    following = Following(deaf.followed_runs, time.monotonic, heartbeat_seconds=0.05)
    reading = asyncio.create_task(read(following.events(claimed.run), seen))

    await show(conversation, claimed, "a", "b")
    await until_shown(seen, 2)
    await end(conversation, claimed, 3)
    async with asyncio.timeout(HANG_SECONDS):
        await reading

    assert not deaf.notifier.is_listening
    assert [event.seq for event in seen] == [1, 2, 3]


class CountedReads:
    """Access to runs for readers that counts how often events are read from the database."""

    def __init__(self, database: Database) -> None:
        self.reads = 0
        self._runs = database.followed_runs

    def __getattr__(self, name: str) -> object:
        return getattr(self._runs, name)

    async def read_events(self, run_id: RunId, after_seq: int, limit: int = 500) -> tuple[RunEvent, ...]:
        self.reads += 1
        return await self._runs.read_events(run_id, after_seq, limit)


async def test_a_reader_in_the_process_of_the_turn_reads_no_event_from_the_database(
    conversation: Conversation,
) -> None:
    claimed = await conversation.start()
    seen: list[RunEvent] = []
    runs = CountedReads(conversation.database)
    following = Following(cast("FollowedRuns", runs), time.monotonic)
    reading = asyncio.create_task(read(following.events(claimed.run, is_fresh=True), seen))
    await asyncio.sleep(0)

    for seq in range(1, 4):
        await conversation.database.events.append_events(claimed.lease, [delta(seq, "a word")])
        await until_shown(seen, seq)
    await end(conversation, claimed, 4)
    await reading

    assert [event.seq for event in seen] == [1, 2, 3, 4]
    assert runs.reads == 0


async def test_readers_of_a_run_that_is_given_back_are_told_to_forget_what_they_saw(
    conversation: Conversation,
) -> None:
    claimed = await conversation.start()
    seen: list[RunEvent] = []
    following = Following(conversation.database.followed_runs, time.monotonic)
    reading = asyncio.create_task(read(following.events(claimed.run), seen))
    await show(conversation, claimed, "half")

    await conversation.database.runs.give_back(claimed.lease)
    await until_shown(seen, 2)
    again = await claim_again(conversation)
    await show(conversation, again, "whole")
    await end(conversation, again, again.next_event + 1)
    await reading

    assert [(event.seq, event.type.value) for event in seen] == [
        (1, "message.delta"),
        (2, "reset"),
        (3, "message.delta"),
        (4, "run.completed"),
    ]
    assert seen[1].event == AnswerReset(1)


async def test_giving_back_twice_tells_readers_once(conversation: Conversation) -> None:
    claimed = await conversation.start()
    await show(conversation, claimed, "half")

    for _ in range(2):
        await conversation.database.runs.give_back(claimed.lease)

    assert len(await conversation.database.events.read_events(claimed.run.id, 1)) == 1


async def test_after_a_crash_that_took_the_events_a_reader_is_shown_all_behind_a_reset(
    conversation: Conversation, database_url: str
) -> None:
    claimed = await conversation.start()
    seen: list[RunEvent] = []
    following = Following(conversation.database.followed_runs, time.monotonic, heartbeat_seconds=0.05)
    reading = asyncio.create_task(read(following.events(claimed.run), seen))
    await show(conversation, claimed, "a", "b", "c")
    await until_shown(seen, 3)
    await run_sql(database_url, "truncate run_events")  # as a crash of the server does

    await conversation.database.runs.give_back(claimed.lease)
    again = await claim_again(conversation)
    await show(conversation, again, "A", "B", "C", "D", "E")
    await end(conversation, again, again.next_event + 5)
    await reading

    assert [event.seq for event in seen[3:]] == [STRIDE + number for number in range(1, 8)]
    assert [event.event.text if isinstance(event.event, MessageDelta) else event.type.value for event in seen[3:]] == [
        "reset",
        *"ABCDE",
        "run.completed",
    ]


async def test_numbers_go_on_behind_all_that_an_earlier_holder_may_have_shown(
    conversation: Conversation, database_url: str
) -> None:
    begins = [(await conversation.start()).next_event]
    for _ in range(2):
        await run_sql(database_url, "update runs set lease_until = now() - interval '1 second'")
        begins.append((await claim_again(conversation)).next_event)

    assert begins == [1, 3 * STRIDE + 1, 6 * STRIDE + 1]


async def test_a_crash_during_a_second_try_hides_nothing_from_its_readers(
    conversation: Conversation, database_url: str
) -> None:
    await conversation.start()
    await run_sql(database_url, "update runs set lease_until = now() - interval '1 second'")
    second = await claim_again(conversation)
    await show(conversation, second, "a", "b")
    await run_sql(database_url, "truncate run_events")

    await conversation.database.runs.give_back(second.lease)
    reset = await conversation.database.events.read_events(second.run.id, second.next_event + 1)
    await run_sql(database_url, "truncate run_events")
    await conversation.database.runs.request_cancel(conversation.owner_id, second.run.id)

    assert [one.event for one in reset] == [AnswerReset(2)]
    ended = await conversation.database.events.read_events(second.run.id, reset[-1].seq)
    assert [one.type.value for one in ended] == ["run.cancelled"]


async def test_the_end_is_told_with_its_answer_and_without_the_events_before_it(
    conversation: Conversation, database_url: str
) -> None:
    claimed = await conversation.start()
    async with database_wire(database_url) as wire:
        elsewhere = await Database.open(DatabaseConfig(url=wire.url))
        seen: list[RunEvent] = []
        waiting = asyncio.create_task(read(Following(elsewhere.followed_runs, time.monotonic).end(claimed.run), seen))
        await show(conversation, claimed, "a", "b", "c")
        await end(conversation, claimed, 4)
        async with asyncio.timeout(HANG_SECONDS):
            await waiting
        await elsewhere.close()

    assert [(event.is_last, event.run_id) for event in seen] == [(True, claimed.run.id)]
    assert [text for text in wire.statements if "run_events" in text and "from unnest" not in text] == []


async def test_an_end_that_nobody_told_of_is_found_by_looking(conversation: Conversation, deaf: Database) -> None:
    claimed = await conversation.start()
    seen: list[RunEvent] = []
    following = Following(deaf.followed_runs, time.monotonic, heartbeat_seconds=0.05)
    waiting = asyncio.create_task(read(following.end(claimed.run), seen))

    await end(conversation, claimed, 1)
    async with asyncio.timeout(HANG_SECONDS):
        await waiting

    assert [event.is_last for event in seen] == [True]


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


def piece_of(index: int, text: str) -> prompt.ToolCallPiece:
    return prompt.ToolCallPiece(index, f"c{index}", "calculator", text)


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
