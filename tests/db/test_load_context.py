"""Loading a turn's context: what is loaded, what is left out, and what is never read."""

import json

import pytest

from app.db.database import Database
from app.db.load_context import LOAD_CONTEXT
from app.domain.errors import NotFound
from app.domain.ids import SessionId
from fakes.conversations import Conversation, open_conversation, user_message
from fakes.raw_sql import run_sql


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


async def test_everything_after_the_cursor_is_loaded_in_order_where_it_fits(conversation: Conversation) -> None:
    stored = await conversation.say(*(f"text {n}" for n in range(1, 151)))
    await conversation.adopt(stored[9])

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=1000)

    assert [message.position for message in loaded.history] == list(range(11, 151))
    assert loaded.is_complete
    assert loaded.session.summary_through_position == 10
    assert loaded.session.conversation_summary == "summary"


@pytest.mark.parametrize(("max_tokens", "first"), [(1, 200), (10, 200), (11, 199), (1000, 101), (1995, 1)])
async def test_only_the_newest_messages_up_to_the_limit_are_loaded(
    conversation: Conversation, max_tokens: int, first: int
) -> None:
    await conversation.say(*(f"text {n}" for n in range(1, 201)), tokens=10)

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=max_tokens)

    assert [message.position for message in loaded.history] == list(range(first, 201))
    assert loaded.is_complete is (first == 1)


async def test_one_message_above_the_limit_is_still_there(conversation: Conversation) -> None:
    await conversation.say("huge", tokens=1_000_000)

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=100)

    assert [message.content for message in loaded.history] == ["huge"]
    assert loaded.is_complete


async def test_the_runs_own_rows_come_apart_and_whatever_their_size(conversation: Conversation) -> None:
    await conversation.say("old", "older", tokens=10)
    claimed = await conversation.start()
    for n in range(3):
        message = user_message(f"own {n}", tokens=1000)
        await conversation.database.messages.append_message(claimed.lease, f"step:{n}", message)

    loaded = await conversation.database.messages.load_context(conversation.session.id, claimed.run.id, max_tokens=20)

    assert [message.content for message in loaded.own] == ["own 0", "own 1", "own 2"]
    assert [message.content for message in loaded.history] == ["old", "older"]
    assert loaded.is_complete


async def test_an_empty_session_loads_and_a_missing_one_is_not_found(conversation: Conversation) -> None:
    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=10)

    assert (loaded.history, loaded.own, loaded.is_complete) == ((), (), True)
    assert loaded.session == conversation.session
    with pytest.raises(NotFound):
        await conversation.database.messages.load_context(SessionId(conversation.owner_id), None, max_tokens=10)


async def test_pinned_messages_say_so(conversation: Conversation, database_url: str) -> None:
    plain, pinned = await conversation.say("plain", "pinned")
    await run_sql(
        database_url,
        "insert into message_pins (message_id, session_id) values ($1, $2)",
        pinned.id,
        conversation.session.id,
    )

    loaded = await conversation.database.messages.load_context(conversation.session.id, None, max_tokens=10)

    assert [(message.id, message.pinned) for message in loaded.history] == [(plain.id, False), (pinned.id, True)]


async def test_messages_that_belong_to_no_run_are_history(conversation: Conversation, database_url: str) -> None:
    await _fill(database_url, conversation, before=5, after=70)
    claimed = await conversation.start()

    for run_id in (None, claimed.run.id):
        loaded = await conversation.database.messages.load_context(conversation.session.id, run_id, max_tokens=10_000)
        assert [message.position for message in loaded.history] == list(range(6, 76))
        assert loaded.is_complete


@pytest.mark.slow
async def test_the_cost_does_not_depend_on_what_lies_before_the_cursor(
    conversation: Conversation, database_url: str
) -> None:
    short, long = conversation, await open_conversation(conversation.database)
    for one, before in ((short, 0), (long, 20_000)):
        await _fill(database_url, one, before=before, after=60)
    await run_sql(database_url, "analyze messages")

    costs = [await _rows_read(database_url, one) for one in (short, long)]

    assert costs[1] <= costs[0] + 64


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
    statement = str(LOAD_CONTEXT)
    for name, number in (("session_id", 1), ("max_tokens", 2)):
        statement = statement.replace(f":{name}", f"${number}")
    statement = statement.replace(":run_id", "null")
    plan = await run_sql(url, f"explain (analyze, format json) {statement}", conversation.session.id, 100_000)
    return sum(_scanned(json.loads(str(plan[0][0]))[0]["Plan"]))


def _scanned(node: dict[str, object]) -> list[int]:
    children = node.get("Plans", [])
    assert isinstance(children, list)
    found = [count for child in children for count in _scanned(child)]
    if node.get("Relation Name") != "messages":
        return found
    rows = float(str(node["Actual Rows"])) * float(str(node["Actual Loops"]))
    return [*found, int(rows) + int(str(node.get("Rows Removed by Filter", 0)))]
