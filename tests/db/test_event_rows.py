from collections.abc import Sequence

import pytest

from fakes.conversations import Conversation, answer_message, open_conversation, user_message
from fakes.event_log import MESSAGE_ID
from fakes.raw_sql import run_sql
from throughline.db.database import Database
from throughline.db.runs.events import event_from
from throughline.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    Event,
    MessageCompleted,
    MessageDelta,
    NewEvent,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    ToolAnswered,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.run import ClaimedRun, Outcome, RunStatus
from throughline.domain.summary import CompactionOutcome

CALL = ToolCall(id="c1", name="calculator", arguments='{"expression": "6*7"}')
RESULT = NewMessage(
    role=Role.TOOL,
    content="a result of its own",
    source=Source.API,
    tool_call_id="c1",
    name="calculator",
    metadata={"is_error": True},
)
STAGE = CompactionFinished(
    cause="threshold",
    outcome=CompactionOutcome.ADOPTED,
    detail="",
    fired=("pruned", "summarised"),
    tokens_before=900,
    tokens_after=300,
    through_position=7,
)


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


async def store(conversation: Conversation, claimed: ClaimedRun, events: Sequence[Event]) -> None:
    numbered = [NewEvent(number, event) for number, event in enumerate(events, start=1)]
    await conversation.database.events.append_events(claimed.lease, numbered)


async def read(conversation: Conversation, claimed: ClaimedRun) -> list[Event]:
    return [stored.event for stored in await conversation.database.events.read_events(claimed.run.id, 0)]


async def take_step(conversation: Conversation, claimed: ClaimedRun) -> tuple[Message, Message]:
    """Store the user's message, a step with one call, and its result; return step and result."""
    append = conversation.database.messages.append_message
    await append(claimed.lease, "user", user_message("what is 6*7?", id=claimed.run.user_message_id))
    step = await append(claimed.lease, "assistant:0", answer_message("a step of its own", tool_calls=(CALL,)))
    return step, await append(claimed.lease, "tool:0:0", RESULT)


async def test_every_kind_of_event_is_read_as_it_was_written(conversation: Conversation) -> None:
    claimed = await conversation.start()
    step, result = await take_step(conversation, claimed)
    told: list[Event] = [
        AnswerReset(2),
        RunStarted(claimed.run),
        CompactionStarted("threshold", 900),
        STAGE,
        MessageDelta(MESSAGE_ID, 'é\u2028\\"'),
        ReasoningDelta(MESSAGE_ID, "hm"),
        ToolCallDelta(MESSAGE_ID, 1, "c1", "calculator", '{"expr'),
        MessageCompleted(step),
        ToolCalled(CALL, step.id),
        ToolAnswered(result),
    ]
    await store(conversation, claimed, told)
    assert await read(conversation, claimed) == told

    outcome = Outcome(RunStatus.SUCCEEDED, answer_message("42"), context={"total_tokens": 7})
    run = await conversation.database.runs.finish(claimed.lease, outcome, (), len(told) + 1)

    answer = (await conversation.messages())[-1]
    assert await read(conversation, claimed) == [*told, MessageCompleted(answer), RunEnded(run, answer)]


async def test_no_stored_event_repeats_a_message(conversation: Conversation, database_url: str) -> None:
    claimed = await conversation.start()
    step, result = await take_step(conversation, claimed)
    await store(conversation, claimed, [RunStarted(claimed.run), MessageCompleted(step), ToolAnswered(result)])
    await conversation.database.runs.finish(
        claimed.lease, Outcome(RunStatus.SUCCEEDED, answer_message("an answer of its own")), (), 4
    )

    stored = await run_sql(database_url, "select data::text from run_events")

    assert len(stored) == 5
    assert not [row for row in stored if "of its own" in str(row[0])]


async def test_an_outcome_that_only_a_newer_version_knows_is_left_out(
    conversation: Conversation, database_url: str
) -> None:
    claimed = await conversation.start()
    await store(conversation, claimed, [STAGE, MessageDelta(MESSAGE_ID, "and on")])
    later = "cast(replace(cast(data as text), 'adopted', 'later') as json)"
    await run_sql(database_url, f"update run_events set data = {later} where type = '{STAGE.type}'")

    assert await read(conversation, claimed) == [MessageDelta(MESSAGE_ID, "and on")]


async def test_parts_that_an_earlier_version_stored_without_an_id_are_left_out(
    conversation: Conversation, database_url: str
) -> None:
    claimed = await conversation.start()
    parts: list[Event] = [MessageDelta(MESSAGE_ID, "a"), ReasoningDelta(MESSAGE_ID, "b"), ToolCalled(CALL, MESSAGE_ID)]
    await store(conversation, claimed, [*parts, AnswerReset(2)])
    await run_sql(database_url, "update run_events set data = cast(cast(data as jsonb) - 'message_id' as json)")

    assert await read(conversation, claimed) == [AnswerReset(2)]


async def test_a_start_is_shown_as_it_was_and_not_as_the_run_stands_now(conversation: Conversation) -> None:
    claimed = await conversation.start()
    await store(conversation, claimed, [RunStarted(claimed.run)])

    await conversation.end(claimed.lease, "over")

    first = (await read(conversation, claimed))[0]
    assert first == RunStarted(claimed.run)


def test_an_event_of_a_type_that_only_a_newer_version_knows_is_left_out() -> None:
    assert event_from({"type": "run.paused", "data": {"why": "approval"}}) is None
