"""A user's daily budget for an agent: refused with what was spent and when it is renewed, and nothing is lost."""

import asyncio
from contextlib import nullcontext, suppress
from dataclasses import replace
from decimal import Decimal

import pytest

from fakes.scripted_model import Call, Fail, Hang, Say, ScriptedModel, ScriptedModels, Step
from fakes.scripted_turns import ASKS_WEATHER, play, results, resume, send
from fakes.stage import AGENT, Stage, open_stage
from fakes.waiting import HANG_SECONDS
from throughline.agents.definition import AgentDefinition, DailyBudget, OtherModel
from throughline.agents.registry import AgentDefaults
from throughline.db.database import Database
from throughline.domain.errors import (
    AgentInvalid,
    DailyBudgetReserved,
    DailyBudgetSpent,
    ModelAuthenticationFailed,
    ModelInvalidRequest,
    ModelQuotaExhausted,
    ModelUnavailable,
    ThroughlineError,
    TurnTimeout,
)
from throughline.domain.message import Message, ToolCall
from throughline.domain.prompt import ModelParameters, Usage
from throughline.domain.run import Outcome, RunStatus
from throughline.domain.tool import Resolution
from throughline.domain.usage_report import CallPurpose, ModelCall, Payer
from throughline.execution.breaker import COOL_DOWN_SECONDS, FAILURES_TO_OPEN
from throughline.turn.call_model import TRIES_BEFORE_FALLBACK
from throughline.turn.context_requests import ContextRequests
from throughline.turn.daily_budget import check_daily_budget
from throughline.turn.prompting.check_agents import check_names
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.take_turn import take_turn

DEAR = Usage(100, 50, cost_usd=Decimal("0.6"))


async def stage_with(database: Database, budget: DailyBudget) -> Stage:
    return await open_stage(database, agent=replace(AGENT, daily_budget=budget))


@pytest.mark.parametrize("budget", [DailyBudget(usd=1.0), DailyBudget(tokens=300), DailyBudget(usd=50.0, tokens=200)])
async def test_a_turn_beyond_the_budget_is_refused_and_its_message_kept(
    database: Database, budget: DailyBudget
) -> None:
    stage = await stage_with(database, budget)
    stage.model.script(Say("one", usage=DEAR), Say("two", usage=DEAR))

    runs = [await stage.turn(text) for text in ("first", "second", "third")]

    assert [run.status for run in runs] == [RunStatus.SUCCEEDED, RunStatus.SUCCEEDED, RunStatus.FAILED]
    assert runs[2].error is not None
    assert runs[2].error.type == "daily_budget_spent"
    assert "$1.2000, 300 tokens" in runs[2].error.detail
    assert "renewed at 00:00 UTC" in runs[2].error.detail
    assert (await stage.messages())[-1].content == "third"


async def test_a_turn_is_not_stopped_in_the_middle(database: Database) -> None:
    stage = await stage_with(database, DailyBudget(usd=0.5))
    call = Call((ToolCall("c1", "calculator", '{"expression": "1+1"}'),), usage=DEAR)
    stage.model.script(call, Say("2", usage=DEAR))

    assert (await stage.turn("1+1?")).status is RunStatus.SUCCEEDED


async def test_a_turn_that_a_dead_process_began_is_finished(database: Database) -> None:
    stage = await stage_with(database, DailyBudget(usd=0.5))
    await stage.submit("1+1?")
    claimed = await stage.claim()
    await database.usage.store_calls(Payer(stage.owner_id, agent=AGENT.name), [call_of(DEAR)])
    stage.model.script(Say("2"))

    await take_turn(stage.turn_start(replace(claimed, run=replace(claimed.run, attempt=2))))

    assert (await database.runs.get_run(stage.owner_id, claimed.run.id)).status is RunStatus.SUCCEEDED


async def test_a_resumed_turn_needs_budget_for_its_next_call_and_keeps_the_result(database: Database) -> None:
    stage = await stage_with(database, DailyBudget(tokens=100))
    stage.model.script(Call((ASKS_WEATHER,), usage=DEAR))
    run = await send(stage)

    await resume(stage, run, Resolution(ASKS_WEATHER.id, "rain"))
    ended = await play(stage, run)

    assert ended.error is not None
    assert (ended.status, ended.error.type) == (RunStatus.FAILED, "daily_budget_spent")
    assert results(await stage.messages()) == [(ASKS_WEATHER.id, "rain")]
    assert len(stage.model.requests) == 1


async def test_turns_at_once_reserve_what_they_are_expected_to_use(database: Database) -> None:
    stage = await stage_with(database, DailyBudget(tokens=10_000))
    stage.model.by_request = lambda _: Say("ok", usage=Usage(5_000, 100))
    for number in range(12):
        await stage.submit_elsewhere(f"message {number}")
    claimed = [await stage.claim() for _ in range(12)]

    await asyncio.gather(*(take_turn(stage.turn_start(one)) for one in reversed(claimed)))

    runs = [await database.runs.get_run(stage.owner_id, one.run.id) for one in claimed]
    assert sum(run.status is RunStatus.SUCCEEDED for run in runs) >= 2
    assert {run.error.type for run in runs if run.error} <= {"daily_budget_reserved", "daily_budget_spent"}
    assert len(stage.model.requests) <= 10


async def test_the_day_s_turns_say_what_a_running_one_is_expected_to_use(database: Database) -> None:
    stage = await stage_with(database, DailyBudget(tokens=10_000))
    stage.model.script(Say("ok", usage=Usage(5_000, 100)))
    await stage.turn("first")
    await stage.submit("second")
    begun = await stage.claim()
    later = await stage.submit_elsewhere("third")
    assert (await stage.claim()).run.id == later.id
    definition = stage.dependencies.agents.get(AGENT.name)

    await check_daily_budget(stage.dependencies, definition, stage.owner_id, run=begun.run)
    with pytest.raises(DailyBudgetReserved, match=r"running \(1\).*Spent are \$0\.0000, 5,100 tokens"):
        await check_daily_budget(stage.dependencies, definition, stage.owner_id, run=later)
    await database.runs.finish(begun.lease, Outcome(RunStatus.CANCELLED), (), 1)
    await check_daily_budget(stage.dependencies, definition, stage.owner_id, run=later)


async def test_a_short_turn_does_not_let_many_long_ones_begin(database: Database) -> None:
    stage = await stage_with(database, DailyBudget(tokens=10_000))
    stage.model.script(Say("ok", usage=Usage(10, 10)))
    await stage.turn("short")
    for number in range(40):
        await stage.submit_elsewhere(f"long {number}")
    claimed = [await stage.claim() for _ in range(40)]
    definition = stage.dependencies.agents.get(AGENT.name)

    allowed = 0
    for one in claimed:
        with suppress(DailyBudgetReserved):
            await check_daily_budget(stage.dependencies, definition, stage.owner_id, run=one.run)
            allowed += 1

    assert allowed <= 20  # half of a tenth of the budget each


async def test_a_long_turn_leaves_what_the_short_ones_reserve(database: Database) -> None:
    stage = await stage_with(database, DailyBudget(tokens=10_000))
    for number in range(3):
        await stage.submit_elsewhere(f"message {number}")
    long, short, last = [await stage.claim() for _ in range(3)]
    await database.usage.store_calls(
        Payer(stage.owner_id, run_id=long.run.id, agent=AGENT.name), [call_of(Usage(9_000, 500))]
    )
    definition = stage.dependencies.agents.get(AGENT.name)

    await check_daily_budget(stage.dependencies, definition, stage.owner_id, run=short.run)
    with pytest.raises(DailyBudgetReserved):
        await check_daily_budget(stage.dependencies, definition, stage.owner_id, run=last.run)


async def test_a_resumed_turn_goes_on_while_others_reserve_the_rest(database: Database) -> None:
    stage = await stage_with(database, DailyBudget(tokens=1_000))
    stage.model.script(Call((ASKS_WEATHER,), usage=Usage(1, 1)), Say("rain", usage=Usage(1, 1)))
    run = await send(stage)
    for number in range(12):
        await stage.submit_elsewhere(f"message {number}")
        await stage.claim()

    await resume(stage, run, Resolution(ASKS_WEATHER.id, "rain"))

    assert (await play(stage, run)).status is RunStatus.SUCCEEDED


def call_of(usage: Usage) -> ModelCall:
    return ModelCall("scripted", CallPurpose.ANSWER, usage)


async def test_other_users_and_other_agents_have_budgets_of_their_own(database: Database) -> None:
    stage = await stage_with(database, DailyBudget(usd=0.5))
    other_id = await database.users.get_or_create("bob")
    await database.usage.store_calls(Payer(other_id, agent=AGENT.name), [call_of(DEAR)])
    await database.usage.store_calls(Payer(stage.owner_id, agent="another"), [call_of(DEAR)])
    definition = stage.dependencies.agents.get(AGENT.name)

    await check_daily_budget(stage.dependencies, definition, stage.owner_id)
    with pytest.raises(DailyBudgetSpent) as caught:
        await check_daily_budget(stage.dependencies, definition, other_id)

    assert 0 < (caught.value.delay_seconds or 0) <= 86_400


async def test_a_summary_on_demand_is_refused_too(database: Database) -> None:
    stage = await stage_with(database, DailyBudget(usd=0.5))
    await database.usage.store_calls(Payer(stage.owner_id, agent=AGENT.name), [call_of(DEAR)])

    requests = ContextRequests(stage.dependencies, database.sessions, database.pins, lambda _: nullcontext())
    with pytest.raises(DailyBudgetSpent):
        await requests.summarize(stage.owner_id, stage.session.id, SummaryRequest())
    with pytest.raises(DailyBudgetSpent):
        await requests.check_summary(stage.owner_id, stage.session.id)


class UnpricedModel(ScriptedModel):
    is_priced = False


class TwoModels:
    """A priced model, and one without a price as `local`."""

    def get(self, model: str, base_url: str | None = None, api_key_env: str | None = None) -> ScriptedModel:
        del base_url, api_key_env
        return UnpricedModel() if model == "local" else ScriptedModel()


@pytest.mark.parametrize(
    "agent",
    [
        replace(AGENT, model="local"),
        replace(AGENT, fallback_models=(OtherModel("local"),)),
        replace(AGENT, override_models=(OtherModel("local"),)),
        replace(AGENT, context=replace(AGENT.context, summary=replace(AGENT.context.summary, model="local"))),
    ],
)
async def test_a_budget_in_dollars_without_a_price_is_refused_at_start(
    database: Database, agent: AgentDefinition
) -> None:
    stage = await open_stage(database)
    defaults, tools = AgentDefaults(0.8, ""), stage.dependencies.tools

    check_names([replace(agent, daily_budget=DailyBudget(tokens=5))], defaults, TwoModels(), tools)
    with pytest.raises(AgentInvalid, match=r"daily_budget\.usd: the price of scripted is unknown"):
        check_names([replace(agent, daily_budget=DailyBudget(usd=5))], defaults, TwoModels(), tools)


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
