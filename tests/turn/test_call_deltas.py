"""Arguments of tool calls in turns: shown while the model writes them, over a real wire; bounded, and taken back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from fakes.anthropic_double import AnthropicDouble
from fakes.one_tool import OneTool
from fakes.provider_double import Failure, ProviderDouble, ScriptedCall, ScriptStep
from fakes.scripted_model import Call, Hang, Say
from fakes.shown_parts import check_ids
from fakes.stage import AGENT, Stage, open_stage
from fakes.waiting import HANG_SECONDS, until_found
from throughline.db.database import Database
from throughline.domain.events import AnswerReset, Event, MessageCompleted, ToolCallDelta, ToolCalled
from throughline.domain.message import ToolCall, text_of
from throughline.domain.run import Run, RunStatus
from throughline.llm.registry import ModelRegistry, ModelsConfig
from throughline.turn.state import TurnConfig
from throughline.turn.take_turn import take_turn

CALLS = (ScriptedCall("call_0", "look", '{"at": "the first"}'), ScriptedCall("call_1", "look", '{"at": "é😀"}'))
SUM = ToolCall("c1", "calculator", '{"expression": "2+3"}')


@pytest.fixture
async def models() -> AsyncIterator[ModelRegistry]:
    registry = ModelRegistry(ModelsConfig(idle_timeout_seconds=HANG_SECONDS))
    yield registry
    await registry.close()


async def open_on(database: Database, models: ModelRegistry, model: str, url: str) -> Stage:
    agent = replace(AGENT, model=model, base_url=url, tools=("look",))
    stage = await open_stage(database, agent=agent, tools=OneTool("look", "seen", repeatable=True))
    stage.dependencies = replace(stage.dependencies, models=models)
    return stage


async def told(stage: Stage, run: Run) -> list[Event]:
    return [event.event for event in await stage.events(run)]


def shown_calls(events: Sequence[Event]) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of each call whose pieces were shown, in order."""
    calls: dict[str, tuple[str, str, str]] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            before = calls.get(event.call_id, ("", "", ""))[2]
            calls[event.call_id] = (event.call_id, event.name, before + event.arguments_delta)
    return list(calls.values())


def made_calls(events: Sequence[Event]) -> list[tuple[str, str, str]]:
    calls = (event.call for event in events if isinstance(event, ToolCalled))
    return [(call.id, call.name, call.arguments) for call in calls]


async def test_arguments_are_shown_before_their_calls(
    database: Database, provider_double: ProviderDouble, models: ModelRegistry
) -> None:
    stage = await open_on(database, models, "openai:double-16k-cl100k", provider_double.url)
    provider_double.script(
        ScriptStep(text="Let me look.", calls=CALLS), ScriptStep(calls=CALLS), ScriptStep(text="So.")
    )

    run = await stage.turn("look")

    events = await told(stage, run)
    assert run.status is RunStatus.SUCCEEDED
    assert len(made_calls(events)) == 4
    assert shown_calls(events) == made_calls(events)
    kinds = [type(event) for event in events]
    assert kinds.index(ToolCallDelta) < kinds.index(MessageCompleted) < kinds.index(ToolCalled)
    check_ids(events)


async def test_anthropics_arguments_are_shown_too(
    database: Database, anthropic_double: AnthropicDouble, models: ModelRegistry
) -> None:
    stage = await open_on(database, models, "anthropic:double-16k-cl100k", anthropic_double.url)
    anthropic_double.script(ScriptStep(calls=CALLS), ScriptStep(text="So."))

    run = await stage.turn("look")

    events = await told(stage, run)
    assert len(made_calls(events)) == 2
    assert shown_calls(events) == made_calls(events)
    check_ids(events)


async def test_arguments_of_an_answer_that_breaks_off_are_taken_back(
    database: Database, provider_double: ProviderDouble, models: ModelRegistry
) -> None:
    stage = await open_on(database, models, "openai:double-16k-cl100k", provider_double.url)
    cut = ScriptStep(calls=CALLS, failure=Failure.CLEAN_CUT)
    provider_double.script(cut, ScriptStep(calls=CALLS), ScriptStep(text="So."))

    run = await stage.turn("look")

    events = await told(stage, run)
    reset = next(index for index, event in enumerate(events) if isinstance(event, AnswerReset))
    assert shown_calls(events[:reset])
    assert shown_calls(events[reset:]) == made_calls(events)
    check_ids(events)


async def test_arguments_of_a_dead_attempt_are_taken_back(
    database: Database, provider_double: ProviderDouble, models: ModelRegistry
) -> None:
    stage = await open_on(database, models, "openai:double-16k-cl100k", provider_double.url)
    provider_double.script(
        ScriptStep(calls=CALLS, failure=Failure.HANG_IN_ANSWER), ScriptStep(calls=CALLS), ScriptStep(text="So.")
    )
    run = await stage.submit("look")
    first = await stage.claim()
    dying = asyncio.create_task(take_turn(stage.turn_start(first)))

    async def shown() -> bool:
        return bool(shown_calls(await told(stage, run)))

    await until_found(shown)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    await database.runs.give_back(first.lease)

    await take_turn(stage.turn_start(await stage.claim()))

    events = await told(stage, run)
    last_reset = max(index for index, event in enumerate(events) if isinstance(event, AnswerReset))
    assert shown_calls(events[last_reset:]) == made_calls(events)
    check_ids(events)


async def test_arguments_without_end_are_stopped_while_they_come(database: Database) -> None:
    stage = await open_stage(database, config=TurnConfig(max_answer_bytes=1_000, token_counter="chars"))
    stage.model.script(Hang(calls=(replace(SUM, arguments="漢" * 400),)))

    run = await stage.turn("go")

    assert run.error is not None
    assert "it was longer than the 1000 bytes" in run.error.detail
    shown = shown_calls(await told(stage, run))
    assert all(len(arguments.encode()) <= 1_000 for _, _, arguments in shown)


async def test_arguments_of_calls_that_are_forbidden_are_not_shown(database: Database) -> None:
    stage = await open_stage(database, agent=replace(AGENT, max_tool_rounds=0))
    stage.model.script(Call((SUM,), text="I want more.", is_streamed=True))

    run = await stage.turn("go")

    assert [text_of(message.content) for message in await stage.messages()] == ["go", "I want more."]
    assert shown_calls(await told(stage, run)) == []
    check_ids(await told(stage, run))


async def test_a_call_that_comes_whole_is_shown_once_it_is_made(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((SUM,)), Say("5"))

    run = await stage.turn("go")

    events = await told(stage, run)
    assert (shown_calls(events), made_calls(events)) == ([], [("c1", "calculator", SUM.arguments)])


async def test_a_turn_that_is_cancelled_while_a_call_is_written_has_no_answer(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Hang(calls=(SUM,)))
    run = await stage.submit("go")
    start = stage.turn_start(await stage.claim())
    turn = asyncio.create_task(take_turn(start))

    async def shown() -> bool:
        return bool(shown_calls(await told(stage, run)))

    await until_found(shown)
    await stage.database.runs.request_cancel(stage.owner_id, run.id)
    start.heartbeat.renew_now()
    await turn

    assert [text_of(message.content) for message in await stage.messages()] == ["go"]
    check_ids(await told(stage, run))
