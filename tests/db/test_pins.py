"""Pins: a message with its whole group, in the name of its owner, set and taken off any number of times."""

import asyncio

import pytest

from fakes.conversations import Conversation, answer_message, everything, open_conversation, user_message
from fakes.raw_sql import run_sql
from throughline.db.database import Database
from throughline.db.sessions.pins import REACH
from throughline.domain.basic_types import MessageId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall


def anything_fits(elsewhere: int) -> None:
    del elsewhere


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


def calls(*ids: str, tokens: str = "x") -> NewMessage:
    return answer_message("", tool_calls=tuple(ToolCall(id=id_, name="search", arguments=tokens) for id_ in ids))


def result(call_id: str, text: str = "found") -> NewMessage:
    return NewMessage(Role.TOOL, text, Source.API, tool_call_id=call_id, name="search", token_count=7, counter="test")


async def append(conversation: Conversation, *messages: NewMessage) -> list[Message]:
    """Run one whole turn that stores these messages."""
    claimed = await conversation.start()
    store = conversation.database.messages.append_message
    stored = [await store(claimed.lease, f"step:{n}", message) for n, message in enumerate(messages)]
    await conversation.end(claimed.lease)
    return stored


async def group_of(conversation: Conversation, message: Message) -> list[int]:
    group = await conversation.database.pins.find_group(conversation.owner_id, conversation.session.id, message.id)
    return [member.position for member in group.messages]


async def test_a_call_and_its_results_are_one_group_from_whichever_end(conversation: Conversation) -> None:
    stored = await append(
        conversation,
        user_message("go"),
        calls("a", "b"),
        result("b"),
        user_message("meanwhile"),
        result("a"),
        calls("a"),
        result("a", "again"),
        answer_message("done"),
    )

    found = [await group_of(conversation, message) for message in stored]

    assert found == [[1], [2, 3, 5], [2, 3, 5], [4], [2, 3, 5], [6, 7], [6, 7], [8]]
    group = await conversation.database.pins.find_group(conversation.owner_id, conversation.session.id, stored[6].id)
    assert group.messages == (stored[5], stored[6])
    assert (group.missing_results, group.is_orphan) == (0, False)


async def test_fifty_parallel_calls_are_one_group(conversation: Conversation) -> None:
    ids = [f"call-{n}" for n in range(50)]
    stored = await append(conversation, calls(*ids), *(result(id_) for id_ in reversed(ids)))

    assert await group_of(conversation, stored[50]) == list(range(1, 52))


async def test_what_is_missing_or_answers_nothing_is_said(conversation: Conversation) -> None:
    stored = await append(conversation, result("z"), calls("a", "b"), result("a"), result("a", "twice"))
    find_group = conversation.database.pins.find_group
    orphan, call, _, twice = [
        await find_group(conversation.owner_id, conversation.session.id, message.id) for message in stored
    ]

    assert (orphan.is_orphan, len(orphan.messages)) == (True, 1)
    assert (call.is_orphan, call.missing_results, len(call.messages)) == (False, 1, 2)
    assert twice.is_orphan


async def test_a_group_is_looked_for_within_reach_only(conversation: Conversation, database_url: str) -> None:
    stored = await append(conversation, calls("a"))
    await run_sql(
        database_url,
        "insert into messages (id, session_id, position, role, content, source)"
        " select gen_random_uuid(), $1, n, 'user', 'x', 'api' from generate_series(2, $2) n",
        conversation.session.id,
        REACH + 1,
    )
    await run_sql(database_url, "update sessions set message_count = $1", REACH + 1)
    late = await append(conversation, result("a"))

    group = await conversation.database.pins.find_group(conversation.owner_id, conversation.session.id, late[0].id)
    assert group.is_orphan
    assert await group_of(conversation, stored[0]) == [1]


async def test_pinning_and_unpinning_may_be_repeated_and_touch_no_message(
    conversation: Conversation, database_url: str
) -> None:
    stored = await append(conversation, calls("a"), result("a"), user_message("x", tokens=30))
    ids = tuple(message.id for message in stored[:2])
    pins, who = conversation.database.pins, (conversation.owner_id, conversation.session.id)
    before = await everything(database_url)

    await asyncio.gather(*(pins.pin(*who, ids, anything_fits) for _ in range(5)))
    pinned = await pins.pin(*who, ids, anything_fits)
    await asyncio.gather(*(pins.unpin(*who, ids) for _ in range(5)))
    unpinned = await pins.unpin(*who, ids)

    assert [(message.id, message.pinned) for message in pinned] == [(id_, True) for id_ in ids]
    assert unpinned == tuple(stored[:2])
    assert await everything(database_url) == before


async def test_what_is_pinned_elsewhere_leaves_out_the_group_itself(conversation: Conversation) -> None:
    stored = await append(conversation, calls("a"), result("a"), user_message("x", tokens=30))
    await conversation.pin(*stored)
    other = await open_conversation(conversation.database)
    await other.pin(*await other.say("elsewhere", tokens=1000))
    pins, who, told = conversation.database.pins, (conversation.owner_id, conversation.session.id), list[int]()

    await pins.pin(*who, tuple(message.id for message in stored[:2]), told.append)
    await pins.pin(*who, (stored[2].id,), told.append)

    assert told == [30, 8]


async def test_what_the_check_refuses_is_not_pinned(conversation: Conversation) -> None:
    def refuse(_elsewhere: int) -> None:
        raise InvalidInput("full")

    stored = await append(conversation, user_message("x", tokens=30))
    with pytest.raises(InvalidInput, match="full"):
        await conversation.database.pins.pin(conversation.owner_id, conversation.session.id, (stored[0].id,), refuse)

    assert [message.pinned for message in await conversation.messages()] == [False]


async def test_another_owner_or_session_pins_and_finds_nothing(conversation: Conversation, database_url: str) -> None:
    stored = await append(conversation, calls("a"), result("a"))
    await conversation.pin(stored[0])
    stranger = await open_conversation(conversation.database, "mallory")
    twin = await open_conversation(conversation.database)
    own = (await twin.say("own"))[0]
    pins = conversation.database.pins
    before = await everything(database_url)

    for owner_id, session_id in (
        (stranger.owner_id, conversation.session.id),
        (stranger.owner_id, stranger.session.id),
        (conversation.owner_id, twin.session.id),
    ):
        for write in (
            pins.find_group(owner_id, session_id, stored[0].id),
            pins.pin(owner_id, session_id, (stored[1].id,), anything_fits),
            pins.unpin(owner_id, session_id, (stored[0].id,)),
        ):
            with pytest.raises(NotFound):
                await write
    with pytest.raises(NotFound, match=str(stored[1].id)):
        await pins.pin(twin.owner_id, twin.session.id, (own.id, stored[1].id), anything_fits)
    with pytest.raises(NotFound):
        await pins.find_group(conversation.owner_id, conversation.session.id, MessageId(conversation.session.id))

    assert await everything(database_url) == before


async def test_pins_go_with_their_session(conversation: Conversation, database_url: str) -> None:
    stored = await conversation.say("a")
    await conversation.pin(*stored)

    await asyncio.gather(
        conversation.database.sessions.delete(conversation.owner_id, conversation.session.id),
        *(_tries_to_pin(conversation, stored[0]) for _ in range(4)),
    )

    assert await run_sql(database_url, "select count(*) from message_pins") == [(0,)]
    assert not await _tries_to_pin(conversation, stored[0])


async def _tries_to_pin(conversation: Conversation, message: Message) -> bool:
    try:
        await conversation.pin(message)
    except NotFound:
        return False
    return True
