"""Loading a turn's context: what is loaded, what is left out, and what is never read."""

import asyncio
import json
from dataclasses import replace

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest

from fakes.conversations import (
    CLAIMER,
    Conversation,
    answer_message,
    claim_next,
    is_loaded_whole,
    open_conversation,
    user_message,
)
from fakes.raw_sql import run_sql
from throughline.db.sessions.load_context import LOAD_CONTEXT
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import LeaseLost, NotFound
from throughline.domain.message import ImageBlock, NewMessage, Role, Source, TextBlock, ToolCall


async def test_everything_after_the_cursor_is_loaded_in_order_where_it_fits(conversation: Conversation) -> None:
    stored = await conversation.say(*(f"text {n}" for n in range(1, 151)))
    await conversation.adopt(stored[9])

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=1000)

    assert [message.position for message in loaded.history] == list(range(11, 151))
    assert is_loaded_whole(loaded)
    assert loaded.session.summary_through_position == 10
    assert loaded.session.conversation_summary == "summary"


@pytest.mark.parametrize(("max_tokens", "first"), [(1, 200), (10, 200), (11, 199), (1000, 101), (1995, 1)])
async def test_only_the_newest_messages_up_to_the_limit_are_loaded(
    conversation: Conversation, max_tokens: int, first: int
) -> None:
    await conversation.say(*(f"text {n}" for n in range(1, 201)), tokens=10)

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=max_tokens)

    assert [message.position for message in loaded.history] == list(range(first, 201))
    assert is_loaded_whole(loaded) is (first == 1)


async def test_one_message_above_the_limit_is_still_there(conversation: Conversation) -> None:
    await conversation.say("huge", tokens=1_000_000)

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=100)

    assert [message.content for message in loaded.history] == ["huge"]
    assert is_loaded_whole(loaded)


def calling(*names: str) -> NewMessage:
    return answer_message("", tool_calls=tuple(ToolCall(name, "grep", "{}") for name in names))


def output(name: str, *, tokens: int) -> NewMessage:
    return NewMessage(
        role=Role.TOOL, content="x", source=Source.API, tool_call_id=name, token_count=tokens, counter="test"
    )


async def test_one_huge_tool_output_does_not_keep_away_what_was_said_before_it(conversation: Conversation) -> None:
    await conversation.say("hello", "world", tokens=10)
    await conversation.store(calling("c1", "c2"), output("c1", tokens=300_000), output("c2", tokens=300_000))
    await conversation.say("found it", tokens=10)

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=16_000)

    assert [message.position for message in loaded.history] == [1, 2, 3, 4, 5, 6]
    assert is_loaded_whole(loaded)


async def test_results_are_not_separated_from_their_call(conversation: Conversation) -> None:
    names = [f"c{n}" for n in range(20)]
    await conversation.say("hello", "world", tokens=10)
    await conversation.store(calling(*names), *(output(name, tokens=300_000) for name in names))

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=16_000)

    assert [message.position for message in loaded.history] == list(range(3, 24))
    assert not is_loaded_whole(loaded)


async def test_a_call_far_above_its_results_comes_alone_with_them_and_its_pins_once(conversation: Conversation) -> None:
    names = [f"c{n}" for n in range(150)]
    before = await conversation.say(*(f"text {n}" for n in range(1, 301)), tokens=10)
    group = await conversation.store(calling(*names), *(output(name, tokens=300_000) for name in names))
    await conversation.pin(before[10], before[298], group[0], group[20], group[149])

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=16_000)

    assert [message.position for message in loaded.history] == list(range(301, 452))
    assert [message.position for message in loaded.history if message.pinned] == [301, 321, 450]
    assert [message.position for message in loaded.pinned] == [11, 299]
    assert not is_loaded_whole(loaded)


async def test_a_call_behind_the_cursor_and_a_result_without_call_bring_nothing_along(
    conversation: Conversation,
) -> None:
    stored = await conversation.store(
        calling("c1", "c2"), output("c1", tokens=9), output("c2", tokens=9), output("lost", tokens=9)
    )
    load = conversation.database.messages.load_context

    orphan = await load(conversation.session.id, None, max_tokens=1)
    await conversation.adopt(stored[1])
    behind = await load(conversation.session.id, None, max_tokens=10)

    assert [message.position for message in orphan.history] == [4]
    assert [message.position for message in behind.history] == [3, 4]


async def test_the_runs_own_rows_come_apart_and_whatever_their_size(conversation: Conversation) -> None:
    await conversation.say("old", "older", tokens=10)
    claimed = await conversation.start()
    for n in range(3):
        message = user_message(f"own {n}", tokens=1000)
        await conversation.database.messages.append_message(claimed.lease, f"step:{n}", message)

    loaded = await conversation.database.messages.load_context(conversation.session.id, claimed.run.id, max_tokens=20)

    assert [message.content for message in loaded.own] == ["own 0", "own 1", "own 2"]
    assert [message.content for message in loaded.history] == ["old", "older"]
    assert is_loaded_whole(loaded)


async def test_an_empty_session_loads_and_a_missing_one_is_not_found(conversation: Conversation) -> None:
    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=10)

    assert (loaded.history, loaded.own, is_loaded_whole(loaded)) == ((), (), True)
    assert loaded.session == conversation.session
    with pytest.raises(NotFound):
        await conversation.database.messages.load_context(SessionId(conversation.owner_id), None, max_tokens=10)


async def test_pinned_messages_say_so(conversation: Conversation) -> None:
    plain, pinned = await conversation.say("plain", "pinned")
    await conversation.pin(pinned)

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=10)

    assert [(message.id, message.pinned) for message in loaded.history] == [(plain.id, False), (pinned.id, True)]


async def test_messages_that_belong_to_no_run_are_history(conversation: Conversation, database_url: str) -> None:
    await _fill(database_url, conversation, before=5, after=70)
    claimed = await conversation.start()

    for run_id in (None, claimed.run.id):
        loaded = await conversation.database.messages.load_context(conversation.session.id, run_id, max_tokens=10_000)
        assert [message.position for message in loaded.history] == list(range(6, 76))
        assert is_loaded_whole(loaded)


async def test_pins_of_other_runs_come_along_wherever_they_lie(conversation: Conversation) -> None:
    stored = await conversation.say(*(f"text {n}" for n in range(1, 301)), tokens=10)
    await conversation.adopt(stored[99])
    pinned = [stored[n] for n in (4, 99, 100, 150, 260, 270, 299)]
    await conversation.pin(*pinned)

    for max_tokens, first in ((100_000, 101), (1000, 201), (400, 261), (395, 261)):
        loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens)

        assert [message.position for message in loaded.history] == list(range(first, 301))
        assert [m.position for m in loaded.pinned] == [m.position for m in pinned if m.position < max(first, 101)]
        assert all(message.pinned for message in loaded.pinned)
        assert [m.position for m in loaded.history if m.pinned] == [
            m.position for m in pinned if m.position >= max(first, 101)
        ]
        assert is_loaded_whole(loaded) is (first == 101)


async def test_a_pin_comes_whole_as_it_was_stored(conversation: Conversation) -> None:
    stored = await conversation.say("to be kept", "b", tokens=10)
    await conversation.pin(stored[0])
    await conversation.adopt(stored[1])

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=10)

    assert loaded.pinned == (replace(stored[0], pinned=True),)
    assert loaded.history == ()
    assert is_loaded_whole(loaded)


async def test_the_runs_own_pinned_rows_come_once(conversation: Conversation) -> None:
    old = await conversation.say("old", tokens=10)
    claimed = await conversation.start()
    append = conversation.database.messages.append_message
    own = [await append(claimed.lease, f"step:{n}", user_message(f"own {n}", tokens=10)) for n in range(3)]
    await conversation.pin(old[0], own[0], own[2])
    await conversation.adopt(own[1])

    load = conversation.database.messages.load_context
    mine, others = [await load(conversation.session.id, run_id, 1000) for run_id in (claimed.run.id, None)]

    assert [message.content for message in mine.own] == ["own 0", "own 1", "own 2"]
    assert [message.pinned for message in mine.own] == [True, False, True]
    assert [message.content for message in mine.pinned] == ["old"]
    assert mine.history == ()
    assert [message.content for message in others.pinned] == ["old", "own 0"]
    assert [message.content for message in others.history] == ["own 2"]
    assert is_loaded_whole(mine)
    assert is_loaded_whole(others)


async def test_pins_of_another_session_stay_there(conversation: Conversation) -> None:
    other = await open_conversation(conversation.database)
    await other.pin(*await other.say("elsewhere"))

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, 1000)

    assert (loaded.pinned, loaded.prepared) == ((), None)


@pytest.mark.slow
@pytest.mark.parametrize("earlier", [10_000, pytest.param(100_000, marks=pytest.mark.proof)])
@pytest.mark.parametrize("is_analysed", [True, False])
async def test_the_cost_does_not_depend_on_what_lies_before_the_cursor(
    conversation: Conversation, database_url: str, *, is_analysed: bool, earlier: int
) -> None:
    short, long = conversation, await open_conversation(conversation.database)
    for one, before in ((short, 0), (long, earlier)):
        await _fill(database_url, one, before=before, after=60)
    if is_analysed:
        await run_sql(database_url, "analyze")
    costs = [await _rows_read(database_url, one) for one in (short, long)]

    await run_sql(
        database_url,
        "insert into message_pins (message_id, session_id) select id, session_id from messages"
        " where session_id = $1 and position % $2 = 0 and position <= 100 * $2",
        long.session.id,
        earlier // 100,
    )
    if is_analysed:
        await run_sql(database_url, "analyze")
    with_pins = await _rows_read(database_url, long)
    loaded = await long.database.messages.load_context(long.session.id, None, 100_000)

    assert costs[1] <= costs[0] + 64
    assert with_pins <= costs[1] + 100
    assert [message.position for message in loaded.pinned] == list(range(earlier // 100, earlier + 1, earlier // 100))
    assert len(loaded.history) == 60


async def _fill(url: str, conversation: Conversation, *, before: int, after: int) -> None:
    await run_sql(
        url,
        "insert into messages (id, session_id, position, role, content, source, token_count)"
        " select gen_random_uuid(), $1, n, 'user', repeat('x', 200), 'api', 50 from generate_series(1, $2) n",
        conversation.session.id,
        before + after,
    )
    await run_sql(
        url,
        "update sessions set message_count = $2, summary_through_position = $3,"
        " summary_through_id = (select id from messages where session_id = $1 and position = $3) where id = $1",
        conversation.session.id,
        before + after,
        before,
    )


async def _rows_read(url: str, conversation: Conversation) -> int:
    """Return how many rows all scans of `messages` read for one load, by the database's own count."""
    asked = {"session_id": conversation.session.id, "run_id": None, "max_tokens": 100_000, "most_each": 12_500}
    statement = f"explain (analyze, format json) {LOAD_CONTEXT.text}"
    plan = await run_sql(url, statement, *LOAD_CONTEXT.arguments(asked))
    return sum(_scanned(json.loads(str(plan[0][0]))[0]["Plan"]))


def _scanned(node: dict[str, object]) -> list[int]:
    children = node.get("Plans", [])
    assert isinstance(children, list)
    found = [count for child in children for count in _scanned(child)]
    if node.get("Relation Name") != "messages":
        return found
    rows = float(str(node["Actual Rows"])) * float(str(node["Actual Loops"]))
    return [*found, int(rows) + int(str(node.get("Rows Removed by Filter", 0)))]


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
    claimed = await claim_next(conversation.database.runs, CLAIMER)

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
