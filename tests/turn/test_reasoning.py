"""Reasoning in turns: shown as events of its own, stored apart from messages, bounded, taken back by a reset."""

import asyncio
from dataclasses import replace

import pytest

from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Fail, Hang, Say
from fakes.stage import AGENT, Stage, open_stage, with_context
from fakes.waiting import until_found
from throughline.agents.definition import ReasoningUse
from throughline.db.database import Database
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.errors import ModelUnavailable
from throughline.domain.events import AnswerReset, MessageDelta, ReasoningDelta, RunEvent
from throughline.domain.message import Message, ToolCall
from throughline.domain.reasoning import CUT_MARK, MAX_REASONING_CHARACTERS, Reasoning
from throughline.domain.run import Run, RunStatus
from throughline.turn.state import TurnConfig
from throughline.turn.take_turn import take_turn

CALL = ToolCall("c1", "calculator", '{"expression": "2+3"}')
STEPS = (Call((CALL,), thinks="I add them."), Say("It is 5", thinks="So it is five."))
ROWS = "select t.text, t.is_shown from message_reasoning t join messages m on m.id = t.message_id order by m.position"


@pytest.fixture
async def stage(database: Database) -> Stage:
    return await open_stage(database)


async def read(stage: Stage, query: MessageQuery) -> list[Message]:
    return list((await stage.database.messages.list_messages(stage.owner_id, stage.session.id, query)).items)


def thought(events: "list[RunEvent]") -> str:
    return "".join(event.event.text for event in events if isinstance(event.event, ReasoningDelta))


async def test_readers_get_it_before_the_text_of_its_step(stage: Stage) -> None:
    stage.model.script(*STEPS)

    run = await stage.turn("2+3?")

    told = [event.type.value for event in await stage.events(run)]
    assert told == [
        "run.started",
        "reasoning.delta",
        "message.completed",
        "tool.call",
        "tool.result",
        "reasoning.delta",
        "message.delta",
        "message.completed",
        "run.completed",
    ]
    assert thought(list(await stage.events(run))) == "I add them.So it is five."


async def test_it_is_stored_apart_and_read_only_where_it_is_asked_for(stage: Stage, database_url: str) -> None:
    stage.model.script(*STEPS)

    await stage.turn("2+3?")

    assert await run_sql(database_url, ROWS) == [("I add them.", True), ("So it is five.", True)]
    assert [message.content for message in await stage.messages()] == ["2+3?", "", "5", "It is 5"]
    assert {message.reasoning for message in await read(stage, MessageQuery())} == {None}
    asked = await read(stage, MessageQuery(reasoning="shown"))
    assert [message.reasoning for message in asked] == [
        None,
        Reasoning("I add them."),
        None,
        Reasoning("So it is five."),
    ]


async def test_it_adds_nothing_to_the_count_of_its_message(stage: Stage) -> None:
    stage.model.script(Say("Yes", thinks="On and on. " * 50), Say("Yes"))
    await stage.turn("one")
    await stage.turn("two")

    first, second = (message for message in await stage.messages() if message.content == "Yes")
    assert first.token_count == second.token_count


@pytest.mark.parametrize(
    ("use", "rows"),
    [
        (ReasoningUse.STORE, [("I add them.", False), ("So it is five.", False)]),
        (ReasoningUse.DROP, []),
    ],
)
async def test_an_agent_may_keep_it_from_users(
    database: Database, database_url: str, use: ReasoningUse, rows: list[tuple[object, ...]]
) -> None:
    stage = await open_stage(database, agent=replace(AGENT, reasoning=use))
    stage.model.script(*STEPS)

    run = await stage.turn("2+3?")

    assert thought(list(await stage.events(run))) == ""
    assert await run_sql(database_url, ROWS) == rows
    assert {message.reasoning for message in await read(stage, MessageQuery(reasoning="shown"))} == {None}
    for_operators = [
        message.reasoning.text for message in await read(stage, MessageQuery(reasoning="all")) if message.reasoning
    ]
    assert for_operators == [text for text, _ in rows]


async def test_a_failed_try_takes_back_reasoning_that_readers_were_shown(stage: Stage, database_url: str) -> None:
    stage.model.script(Fail(ModelUnavailable("down"), thinks="Wrong"), Say("Yes", thinks="Right"))

    run = await stage.turn("hi")

    shown = [event.event for event in await stage.events(run)]
    kept = [event for event in shown if isinstance(event, ReasoningDelta | AnswerReset | MessageDelta)]
    wrong, reset, right, yes = kept
    assert isinstance(wrong, ReasoningDelta)
    assert run.message_id is not None
    assert wrong == ReasoningDelta(wrong.message_id, "Wrong")
    assert [reset, right, yes] == [
        AnswerReset(1),
        ReasoningDelta(run.message_id, "Right"),
        MessageDelta(run.message_id, "Yes"),
    ]
    assert wrong.message_id != run.message_id
    assert await run_sql(database_url, ROWS) == [("Right", True)]


async def test_a_failed_try_that_showed_nothing_takes_nothing_back(database: Database) -> None:
    stage = await open_stage(database, agent=replace(AGENT, reasoning=ReasoningUse.STORE))
    stage.model.script(Fail(ModelUnavailable("down"), thinks="Wrong"), Say("Yes"))

    run = await stage.turn("hi")

    assert not [event for event in await stage.events(run) if isinstance(event.event, AnswerReset)]


async def test_a_long_text_is_cut_with_a_mark(stage: Stage, database_url: str) -> None:
    stage.model.script(Say("Yes", thinks="x" * (MAX_REASONING_CHARACTERS + 1)))

    await stage.turn("hi")

    ((text, _),) = await run_sql(database_url, ROWS)
    assert text == "x" * MAX_REASONING_CHARACTERS + CUT_MARK


@pytest.mark.parametrize(("thinks", "says"), [("on " * 400, ""), ("on " * 200, "and " * 200)])
async def test_reasoning_without_end_is_stopped_like_an_answer_without_end(
    database: Database, thinks: str, says: str
) -> None:
    stage = await open_stage(
        database, agent=with_context(), config=TurnConfig(max_answer_bytes=1000, token_counter="chars")
    )
    stage.model.script(Say(says, thinks=thinks))

    run = await stage.turn("hi")

    assert run.error is not None
    assert "the 1000 bytes an answer may have, its reasoning included" in run.error.detail


async def test_a_turn_that_is_cancelled_while_the_model_thinks_has_no_answer(stage: Stage) -> None:
    stage.model.script(Hang(thinks="Let me see"))
    run = await stage.submit("hi")
    playing = asyncio.create_task(take_turn(stage.turn_start(await stage.claim())))

    async def shown() -> bool:
        return bool(thought(list(await stage.events(run))))

    await until_found(shown)
    await stage.database.runs.request_cancel(stage.owner_id, run.id)
    await playing

    ended: Run = await stage.database.runs.get_run(stage.owner_id, run.id)
    assert ended.status is RunStatus.CANCELLED
    assert [message.content for message in await stage.messages()] == ["hi"]
