"""The message log: positions, repetition, fences, and that nothing stored ever changes."""

import asyncio

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest

from fakes.conversations import CLAIMER, Conversation, answer_message, open_conversation, user_message
from fakes.raw_sql import run_sql
from throughline.db.database import Database
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.errors import LeaseLost, NotFound
from throughline.domain.message import ImageBlock, NewMessage, Role, Source, TextBlock, ToolCall


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


@pytest.mark.parametrize(
    "statement",
    [
        "update messages set content = 'changed'",
        "delete from messages",
        "delete from messages where false",
        "truncate messages cascade",
    ],
)
async def test_a_stored_message_cannot_be_changed_or_removed(
    conversation: Conversation, database_url: str, statement: str
) -> None:
    await conversation.say("kept")

    with pytest.raises(asyncpg.RestrictViolationError, match="append-only"):
        await run_sql(database_url, statement)

    assert [message.content for message in await conversation.messages()] == ["kept"]


async def test_positions_have_no_gaps_and_no_doubles_when_32_writers_append_at_once(
    conversation: Conversation,
) -> None:
    claimed = await conversation.start()
    append = conversation.database.messages.append_message

    stored = await asyncio.gather(*(append(claimed.lease, f"tool:{n}", user_message(f"text {n}")) for n in range(32)))

    assert sorted(message.position for message in stored) == list(range(1, 33))
    assert (await conversation.reload()).message_count == 32


async def test_the_same_step_is_stored_once_even_when_written_twice_at_once(conversation: Conversation) -> None:
    claimed = await conversation.start()
    append = conversation.database.messages.append_message

    first = await append(claimed.lease, "user", user_message("first"))
    again = await append(claimed.lease, "user", user_message("second"))
    racing = await asyncio.gather(*(append(claimed.lease, "race", user_message(str(n))) for n in range(8)))

    assert (again.id, again.content) == (first.id, "first")
    assert len({message.id for message in racing}) == 1
    assert [message.position for message in await conversation.messages()] == [1, 2]
    assert (await conversation.reload()).message_count == 2


async def test_a_stale_fence_writes_nothing(conversation: Conversation) -> None:
    late = await conversation.start()
    await conversation.database.runs.give_back(late.lease)
    claimed = await conversation.database.runs.claim_next(CLAIMER)

    assert claimed is not None
    with pytest.raises(LeaseLost):
        await conversation.database.messages.append_message(late.lease, "user", user_message("too late"))
    assert await conversation.messages() == ()
    assert (await conversation.reload()).message_count == 0


HOSTILE = '  {"b": 1,  "a":\t2.50, "a": "\\u0041"}\r\n \u2028 <|endoftext|> \U0001f600 e\u0301 \ufeff '


async def test_text_calls_and_blocks_come_back_byte_for_byte(conversation: Conversation) -> None:
    claimed = await conversation.start()
    call = ToolCall(id="c1", name="search", arguments='{"q":  1.0,}')
    blocks = (TextBlock(HOSTILE), ImageBlock("https://example.org/a.png"))
    result = NewMessage(role=Role.TOOL, content=HOSTILE, source=Source.API, tool_call_id="c1", name="search")
    append = conversation.database.messages.append_message

    await append(claimed.lease, "user", NewMessage(role=Role.USER, content=blocks, source=Source.WEB))
    await append(claimed.lease, "assistant:0", answer_message("", tool_calls=(call,)))
    await append(claimed.lease, "tool:0", result)

    first, second, third = await conversation.messages()
    assert first.content == blocks
    assert second.tool_calls == (call,)
    assert (second.content, third.content, third.tool_call_id) == ("", HOSTILE, "c1")


async def test_the_history_is_read_page_by_page_in_both_directions(conversation: Conversation) -> None:
    await conversation.say(*(f"text {n}" for n in range(1, 8)))
    list_messages = conversation.database.messages.list_messages
    who = (conversation.owner_id, conversation.session.id)

    first = await list_messages(*who, MessageQuery(limit=3))
    second = await list_messages(*who, MessageQuery(limit=3, after=int(first.next_cursor or "")))
    newest = await list_messages(*who, MessageQuery(limit=3, order="desc"))
    older = await list_messages(*who, MessageQuery(limit=10, order="desc", before=int(newest.next_cursor or "")))

    assert [m.position for m in first.items + second.items] == [1, 2, 3, 4, 5, 6]
    assert [m.position for m in newest.items + older.items] == [7, 6, 5, 4, 3, 2, 1]
    assert older.next_cursor is None


async def test_another_owner_finds_neither_session_nor_message(conversation: Conversation) -> None:
    message, *_ = await conversation.say("private")
    stranger = await conversation.database.users.get_or_create("mallory")

    for read in (
        conversation.database.messages.list_messages(stranger, conversation.session.id, MessageQuery()),
        conversation.database.messages.get_message(stranger, conversation.session.id, message.id),
        conversation.database.summaries.list(stranger, conversation.session.id),
    ):
        with pytest.raises(NotFound):
            await read
