"""Stored reasoning: gone with a redaction and with its session, found by no search, and read within a page's size."""

from collections.abc import Sequence

import pytest

from fakes.conversations import Conversation, answer_message, open_conversation, user_message
from fakes.event_log import MESSAGE_ID
from fakes.raw_sql import run_sql
from throughline.db.database import Database
from throughline.db.sessions.messages import PAGE_BYTES, MessageQuery
from throughline.db.sessions.redaction import Redaction
from throughline.domain.events import EventType, NewEvent, ReasoningDelta
from throughline.domain.message import Message, NewMessage
from throughline.domain.reasoning import Reasoning
from throughline.domain.recall import HistoryQuery

POSITIONS = "select m.position from message_reasoning t join messages m on m.id = t.message_id order by m.position"


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


def thinking(answer: str, thought: str) -> NewMessage:
    message = answer_message(answer)
    return NewMessage(message.role, answer, message.source, reasoning=Reasoning(thought))


async def talk(conversation: Conversation, count: int) -> list[Message]:
    """Store so many exchanges, each in a run of its own that showed its reasoning as an event."""
    stored: list[Message] = []
    for number in range(count):
        claimed = await conversation.start()
        for step, message in enumerate((user_message(f"question {number}"), thinking(f"answer {number}", "tangelo42"))):
            stored.append(await conversation.database.messages.append_message(claimed.lease, f"s{step}", message))
        await conversation.database.events.append_events(
            claimed.lease, [NewEvent(1, ReasoningDelta(MESSAGE_ID, "tangelo42"))]
        )
        await conversation.end(claimed.lease)
    return stored


async def redact(conversation: Conversation, message: Message) -> None:
    wanted = Redaction(conversation.owner_id, conversation.session.id, message.id)
    await conversation.database.messages.redact(wanted)


async def events_of(conversation: Conversation, messages: Sequence[Message]) -> list[bool]:
    """Whether the events of each message's run still show reasoning."""
    events = conversation.database.events
    runs = [message.run_id for message in messages]
    read = [await events.read_events(run_id, 0) for run_id in runs if run_id is not None]
    return [any(event.type is EventType.REASONING_DELTA for event in found) for found in read]


async def test_a_redaction_takes_the_reasoning_from_the_message_on(
    conversation: Conversation, database_url: str
) -> None:
    stored = await talk(conversation, 3)
    other = await open_conversation(conversation.database)
    elsewhere = await talk(other, 1)

    await redact(conversation, stored[2])

    assert await run_sql(database_url, POSITIONS) == [(2,), (2,)]
    assert await events_of(conversation, stored[::2]) == [True, False, False]
    assert await events_of(other, elsewhere[:1]) == [True]


async def test_it_goes_with_its_session(conversation: Conversation, database_url: str) -> None:
    await talk(conversation, 2)

    await conversation.database.sessions.delete(conversation.owner_id, conversation.session.id)

    assert await run_sql(database_url, "select * from message_reasoning") == []


@pytest.mark.parametrize("is_indexed", [True, False])
async def test_a_search_does_not_find_it(conversation: Conversation, *, is_indexed: bool) -> None:
    await talk(conversation, 2)
    history, who, where = conversation.database.history, conversation.owner_id, conversation.session.id
    if is_indexed:
        await history.index_session(where)

    assert (await history.search(who, where, HistoryQuery("tangelo42"))).hits == ()
    assert (await history.search(who, where, HistoryQuery("answer"))).hits != ()


async def test_a_page_with_reasoning_is_as_bounded_as_one_without(conversation: Conversation) -> None:
    large = "x" * (PAGE_BYTES // 4 + 1)
    await conversation.store(*(thinking(f"answer {number}", large) for number in range(6)))
    messages = conversation.database.messages

    plain = await messages.list_messages(conversation.owner_id, conversation.session.id, MessageQuery())
    page = await messages.list_messages(conversation.owner_id, conversation.session.id, MessageQuery(reasoning="shown"))

    assert (len(plain.items), plain.next_cursor) == (6, None)
    assert (len(page.items), page.next_cursor) == (4, "4")


async def test_a_repeated_step_keeps_the_first_reasoning(conversation: Conversation, database_url: str) -> None:
    claimed = await conversation.start()
    append = conversation.database.messages.append_message
    await append(claimed.lease, "assistant:0", thinking("answer", "first"))
    await append(claimed.lease, "assistant:0", thinking("answer", "second"))

    assert await run_sql(database_url, "select text from message_reasoning") == [("first",)]
