"""Fallback models answer while the agent's model is unavailable, and never hide a refusal."""

import asyncio
from dataclasses import replace

import pytest

from fakes.scripted_model import Call, Fail, Hang, Say, ScriptedModel, ScriptedModels, Step
from fakes.stage import AGENT, Stage, open_stage
from fakes.waiting import HANG_SECONDS
from throughline.agents.definition import AgentDefinition, OtherModel
from throughline.db.database import Database
from throughline.domain.errors import (
    ModelAuthenticationFailed,
    ModelInvalidRequest,
    ModelQuotaExhausted,
    ModelUnavailable,
    ThroughlineError,
    TurnTimeout,
)
from throughline.domain.message import Message, ToolCall
from throughline.domain.prompt import ModelParameters
from throughline.domain.run import RunStatus
from throughline.execution.breaker import COOL_DOWN_SECONDS, FAILURES_TO_OPEN
from throughline.turn.call_model import TRIES_BEFORE_FALLBACK

DOWN = Fail(ModelUnavailable("down"))
AGAIN = [DOWN] * TRIES_BEFORE_FALLBACK
WITH_TWO = replace(
    AGENT,
    fallback_models=(OtherModel("second", parameters=ModelParameters(temperature=0.5)), OtherModel("third")),
)


async def open_with_fallbacks(
    database: Database, *, agent: AgentDefinition = WITH_TWO, window: int = 8192
) -> tuple[Stage, ScriptedModel, ScriptedModel]:
    stage = await open_stage(database, agent=agent)
    second, third = ScriptedModel(context_limit=window), ScriptedModel()
    models = ScriptedModels(stage.model, second=second, third=third)
    stage.dependencies = replace(stage.dependencies, models=models)
    return stage, second, third


async def test_a_model_that_does_not_begin_in_time_is_tried_once(
    database: Database,
) -> None:
    hasty = replace(WITH_TWO, fallback_after_seconds=0.05)
    stage, second, _ = await open_with_fallbacks(database, agent=hasty)
    stage.model.script(Hang())
    second.script(Say("from the second"))

    assert (await stage.turn("hi")).status is RunStatus.SUCCEEDED
    assert (await answer(stage)).content == "from the second"
    assert len(stage.model.requests) == 1


async def test_a_model_that_has_begun_may_take_its_time(database: Database) -> None:
    stage, _, _ = await open_with_fallbacks(database, agent=replace(WITH_TWO, fallback_after_seconds=0.05))
    gate = asyncio.Event()
    stage.model.script(Say("one two", gate=gate))

    turn = asyncio.create_task(stage.turn("hi"))
    async with asyncio.timeout(HANG_SECONDS):
        while not stage.model.requests:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        gate.set()
        await turn

    assert (await answer(stage)).content == "one two"


async def answer(stage: Stage) -> Message:
    return (await stage.messages())[-1]


async def test_the_next_model_answers_and_the_answer_says_so(database: Database) -> None:
    stage, second, _ = await open_with_fallbacks(database)
    stage.model.script(*AGAIN)
    second.script(Say("from the second"))

    run = await stage.turn("hi")

    assert run.status is RunStatus.SUCCEEDED
    assert (await answer(stage)).content == "from the second"
    assert (await answer(stage)).metadata == {"fallback_model": second.name}
    assert second.requests[0].parameters.temperature == 0.5
    assert stage.model.requests[0].parameters.temperature is None


async def test_the_third_answers_if_the_second_is_down_or_refuses(database: Database) -> None:
    stage, second, third = await open_with_fallbacks(database)
    stage.model.script(*AGAIN)
    second.script(Fail(ModelAuthenticationFailed("no key")))
    third.script(Say("from the third"))

    await stage.turn("hi")

    assert (await answer(stage)).content == "from the third"


async def test_if_none_answers_the_first_models_error_is_the_runs(database: Database) -> None:
    stage, second, third = await open_with_fallbacks(database)
    stage.model.script(*AGAIN)
    second.script(Fail(ModelAuthenticationFailed("no key")))
    third.script(*[Fail(ModelUnavailable("also down"))] * 4)

    run = await stage.turn("hi")

    assert run.error is not None
    assert (run.error.type, run.error.detail) == ("model_unavailable", "down")


@pytest.mark.parametrize(
    "error", [ModelQuotaExhausted("no quota"), ModelAuthenticationFailed("no key"), ModelInvalidRequest("bad")]
)
async def test_a_refusal_is_never_hidden(database: Database, error: ThroughlineError) -> None:
    stage, second, _ = await open_with_fallbacks(database)
    stage.model.script(Fail(error))

    run = await stage.turn("hi")

    assert run.error is not None
    assert run.error.type == error.code
    assert second.requests == []


async def test_the_turn_goes_on_with_the_model_that_answered(database: Database) -> None:
    stage, second, _ = await open_with_fallbacks(database)
    stage.model.script(*AGAIN)
    second.script(Call((ToolCall("c1", "calculator", '{"expression": "1+1"}'),)), Say("2"))

    await stage.turn("sum")

    assert (await answer(stage)).content == "2"
    assert len(stage.model.requests) == TRIES_BEFORE_FALLBACK


async def test_a_model_that_failed_often_is_passed_over_for_a_while(database: Database) -> None:
    stage, second, _ = await open_with_fallbacks(database)
    stage.model.script(*AGAIN * FAILURES_TO_OPEN, Say("I am back"))
    second.script(*[Say("instead")] * (FAILURES_TO_OPEN + 1))
    for number in range(FAILURES_TO_OPEN + 1):
        await stage.turn(f"message {number}")
    asked = len(stage.model.requests)
    stage.clock.advance(COOL_DOWN_SECONDS)
    await stage.turn("and now")

    assert asked == TRIES_BEFORE_FALLBACK * FAILURES_TO_OPEN
    assert (await answer(stage)).content == "I am back"


async def test_what_was_shown_of_the_failed_answer_is_taken_back(database: Database) -> None:
    stage, second, _ = await open_with_fallbacks(database)
    stage.model.script(*[Fail(ModelUnavailable("cut"), shown="half an answ")] * TRIES_BEFORE_FALLBACK)
    second.script(Say("whole"))

    run = await stage.turn("hi")

    types = [event.type.value for event in await stage.events(run)]
    assert types.count("reset") == TRIES_BEFORE_FALLBACK
    assert types.index("run.completed") == len(types) - 1


async def test_the_prompt_fits_the_smaller_window_of_a_fallback_model(database: Database) -> None:
    stage, second, _ = await open_with_fallbacks(database, window=2_048)
    said: list[Step] = [Say("word " * 150) for _ in range(8)]
    stage.model.script(*said, *AGAIN)
    second.script(Say("short"))
    for number in range(8):
        await stage.turn(f"{number} " + "word " * 150)
    await stage.turn("and now")

    assert (await answer(stage)).content == "short"
    shown = sum(len(str(message.content)) for message in second.requests[0].prompt.messages)
    assert shown < sum(len(str(message.content)) for message in stage.model.requests[-1].prompt.messages)


async def test_a_long_pause_that_the_provider_asks_for_is_not_waited_for(database: Database) -> None:
    stage, second, _ = await open_with_fallbacks(database)
    stage.model.script(Fail(ModelUnavailable("busy", delay_seconds=40.0)))
    second.script(Say("at once"))

    await stage.turn("hi")

    assert (await answer(stage)).content == "at once"
    assert sum(stage.clock.slept) < 40.0


async def test_a_model_that_lets_turns_run_out_of_time_is_passed_over_too(database: Database) -> None:
    stage, second, _ = await open_with_fallbacks(database)
    stage.model.script(*[Fail(TurnTimeout("too late"))] * FAILURES_TO_OPEN)
    second.script(Say("instead"))
    for number in range(FAILURES_TO_OPEN + 1):
        await stage.turn(f"message {number}")

    assert (await answer(stage)).content == "instead"


async def test_while_the_first_model_is_passed_over_its_absence_is_the_runs_error(database: Database) -> None:
    stage, second, third = await open_with_fallbacks(database)
    stage.model.script(*AGAIN * FAILURES_TO_OPEN)
    second.script(*[Fail(ModelAuthenticationFailed("no key"))] * (FAILURES_TO_OPEN + 1))
    third.script(*[Fail(ModelAuthenticationFailed("no key"))] * (FAILURES_TO_OPEN + 1))
    for number in range(FAILURES_TO_OPEN):
        await stage.turn(f"message {number}")
    run = await stage.turn("and now")

    assert run.error is not None
    assert run.error.type == "model_unavailable"
    assert "is not called for a minute" in run.error.detail
