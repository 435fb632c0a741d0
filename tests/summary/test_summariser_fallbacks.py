"""Failures of summaries: a retry, the fallback in its share of the time, and who is left alone for whom."""

import asyncio
from dataclasses import replace

import pytest

from fakes.compactions import SUMMARY, compact_now, fill, open_summarising, positions_read, prepare_one
from fakes.scripted_model import Fail, Hang, Say, ScriptedModel, Step
from fakes.stage import Stage
from fakes.waiting import HANG_SECONDS
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.explain_context import SummariserReport
from throughline.context.plan_context import plan_context
from throughline.context.policy import SummaryKind
from throughline.db.database import Database
from throughline.domain.errors import (
    ContextOverflow,
    ModelInvalidRequest,
    ModelQuotaExhausted,
    ModelRefused,
    ModelUnavailable,
)
from throughline.domain.summary import CompactionResult
from throughline.execution.breaker import COOL_DOWN_SECONDS, FAILURES_TO_OPEN, BreakerState
from throughline.turn.prompting.context_report import report_context
from throughline.turn.prompting.planning import at_rest, make_context_input
from throughline.turn.prompting.ready_agent import model_keys
from throughline.turn.summary.compact import compact
from throughline.turn.summary.compaction import Compaction

REFUSAL = Say("I'm sorry, but I can't help with that.")
WORDY = Say("".join(f"A sentence {number:04d} says nothing. " for number in range(60)))
SHORT = Say("The user counts.")


def always(step: Step) -> ScriptedModel:
    model = ScriptedModel()
    model.by_request = lambda _: step
    return model


async def open_beside(database: Database, stage: Stage) -> Stage:
    """Open another session in the same process, whose summary model is well."""
    other = await open_summarising(database)
    other.dependencies = replace(other.dependencies, breakers=stage.dependencies.breakers)
    other.model.by_request = lambda _: Say(SUMMARY)
    await fill(other, 4)
    return other


async def compact_within(stage: Stage, seconds: float) -> CompactionResult:
    agent, conversation = await at_rest(stage.dependencies, await stage.reload())
    plan = plan_context(make_context_input(agent, conversation, None), forced=CompactionTrigger.MANUAL)
    return (await compact(stage.dependencies, Compaction(agent, conversation, plan, seconds_left=seconds)))[2]


async def test_a_slow_summary_model_leaves_its_fallback_the_time_to_answer(database: Database) -> None:
    own = always(Say("own words"))
    stage = await open_summarising(database, own=own, timeout_seconds=2, chunk_messages=2)
    stage.model.by_request = lambda _: Hang()
    await fill(stage, 4)

    done = await compact_now(stage)

    assert (done.outcome, done.session.summary_through_position) == ("adopted", 6)
    assert "own words" in done.session.conversation_summary
    assert (len(stage.model.requests), len(own.requests)) == (1, 3)
    assert [row["reason"] for row in stage.metrics.of("summary_failed")] == ["timeout"]


async def test_a_summary_model_too_slow_for_its_share_three_times_is_left_alone(database: Database) -> None:
    own = always(Say("own words"))
    stage = await open_summarising(database, own=own, timeout_seconds=1)
    stage.model.by_request = lambda _: Hang()

    for _ in range(FAILURES_TO_OPEN + 1):
        await fill(stage, 2, words=60)
        assert (await compact_now(stage)).outcome == "adopted"

    assert len(stage.model.requests) == FAILURES_TO_OPEN


async def test_a_model_too_slow_for_turns_still_writes_what_is_prepared_ahead(database: Database) -> None:
    stage = await open_summarising(database, timeout_seconds=1)
    await fill(stage, 20)
    stage.model.by_request = lambda _: Hang()
    for _ in range(FAILURES_TO_OPEN):
        await compact_now(stage)
    stage.model.by_request = lambda _: Say(SUMMARY)

    in_a_turn = await compact_now(stage)
    ahead = await prepare_one(stage)

    assert in_a_turn.outcome == "failed"
    assert ahead


async def test_a_model_too_slow_for_a_segment_is_asked_for_a_smaller_one(database: Database) -> None:
    stage = await open_summarising(database, timeout_seconds=1)
    stage.model.by_request = lambda request: Hang() if len(positions_read([request])) > 10 else Say(SUMMARY)
    await fill(stage, 17)

    ended = [await compact_within(stage, 1) for _ in range(3)]

    assert [done.outcome for done in ended] == ["failed", "failed", "adopted"]


async def test_a_call_that_was_given_little_time_says_nothing_of_the_model(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: Hang()
    await fill(stage, 4)

    async with asyncio.timeout(HANG_SECONDS):
        while len(stage.metrics.of("summary_failed")) < FAILURES_TO_OPEN:  # on a busy machine no time is left to ask
            assert (await compact_within(stage, 0.2)).outcome == "failed"

    assert {stage.dependencies.breakers.failures(key) for key in model_keys("scripted")} == {0}
    assert [row["reason"] for row in stage.metrics.of("summary_failed")] == FAILURES_TO_OPEN * ["timeout"]


@pytest.mark.parametrize("nonsense", [Say(""), REFUSAL, Say("Error: 503 service unavailable")])
async def test_a_text_of_no_use_is_asked_for_once_more(database: Database, nonsense: Step) -> None:
    stage = await open_summarising(database)
    stage.model.script(nonsense, Say(SUMMARY))
    await fill(stage, 4)

    done = await compact_now(stage)

    assert done.outcome == "adopted"
    assert stage.clock.slept == []
    assert stage.metrics.of("summary_failed") == []


async def test_a_text_of_no_use_is_not_asked_for_again_where_the_time_is_short(database: Database) -> None:
    stage = await open_summarising(database)

    def slowly(_: object) -> Step:
        stage.clock.advance(6)
        return REFUSAL

    stage.model.by_request = slowly
    await fill(stage, 4)

    assert (await compact_now(stage)).outcome == "adopted"
    assert len(stage.model.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [Fail(ContextOverflow("too long")), Fail(ModelRefused("no")), Fail(ModelInvalidRequest("what is this"))],
)
async def test_what_one_session_is_answered_keeps_no_other_from_being_summarised(
    database: Database, answer: Step
) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: answer
    await fill(stage, 4)
    for _ in range(FAILURES_TO_OPEN):
        await compact_now(stage, "refuse")
    asked = len(stage.model.requests)
    other = await open_beside(database, stage)

    resting, done = await compact_now(stage), await compact_now(other)

    assert (done.outcome, resting.outcome) == ("adopted", "failed")
    assert len(stage.model.requests) == asked
    stage.model.by_request = lambda _: Say(SUMMARY)
    stage.clock.advance(COOL_DOWN_SECONDS)
    assert (await compact_now(stage)).outcome == "adopted"


@pytest.mark.parametrize("failure", [ModelUnavailable("away"), ModelQuotaExhausted("no credit")])
async def test_a_model_that_cannot_be_had_is_left_alone_by_all_and_both_are_counted(
    database: Database, failure: ModelUnavailable | ModelQuotaExhausted
) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: Fail(failure)
    await fill(stage, 4)
    for _ in range(FAILURES_TO_OPEN):
        await compact_now(stage)
    other = await open_beside(database, stage)

    resting = await compact_now(other)
    stage.clock.advance(COOL_DOWN_SECONDS)
    back = await compact_now(other)

    assert (resting.outcome, back.outcome) == ("failed", "adopted")
    assert (
        resting.detail == "The summary model scripted failed several times in a row; it is asked again in 60 seconds."
    )
    assert [row["reason"] for row in other.metrics.of("summary_failed")] == ["circuit_open"]
    assert [row["is_open"] for row in stage.metrics.of("summary_breaker_read")] == [False, False, True]
    assert [row["is_open"] for row in other.metrics.of("summary_breaker_read")] == [False]


async def test_a_report_on_the_context_tells_whether_the_summary_model_can_be_asked(database: Database) -> None:
    stage = await open_summarising(database, own=always(Say("own words")))
    stage.model.by_request = lambda _: Fail(ModelUnavailable("away"))
    told = [(await report_context(stage.dependencies, stage.session)).summariser]
    for _ in range(FAILURES_TO_OPEN):
        await fill(stage, 2)
        await compact_now(stage)

    told.append((await report_context(stage.dependencies, stage.session)).summariser)
    stage.clock.advance(COOL_DOWN_SECONDS)
    told.append((await report_context(stage.dependencies, stage.session)).summariser)

    assert told == [
        SummariserReport("scripted", "closed", 0),
        SummariserReport("scripted", "open", 60),
        SummariserReport("scripted", "half_open", 0),
    ]


async def test_a_report_tells_what_holds_for_its_own_session(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: REFUSAL
    for _ in range(FAILURES_TO_OPEN):
        await fill(stage, 4)
        await compact_now(stage)
    other = await open_beside(database, stage)

    told = [(await report_context(here.dependencies, here.session)).summariser for here in (stage, other)]

    assert told == [SummariserReport("scripted", "open", 60), SummariserReport("scripted", "closed", 0)]


async def test_a_fallback_may_write_what_is_worth_it(database: Database) -> None:
    own = always(SHORT)
    stage = await open_summarising(database, own=own, kind=SummaryKind.LLM)
    stage.model.by_request = lambda _: WORDY
    await fill(stage, 2, words=40)

    done = await compact_now(stage)

    assert done.outcome == "adopted"
    assert "The user counts." in done.session.conversation_summary


async def test_where_one_finds_it_not_worth_it_no_failure_of_the_other_is_told(database: Database) -> None:
    stage = await open_summarising(database, own=always(REFUSAL))
    stage.model.by_request = lambda _: WORDY
    await fill(stage, 2, words=5)

    assert (await compact_now(stage)).outcome == "skipped"


async def test_a_text_that_is_not_worth_it_shows_that_the_model_is_back(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: Fail(ModelUnavailable("away"))
    await fill(stage, 2, words=5)
    for _ in range(FAILURES_TO_OPEN):
        await compact_now(stage)
    stage.clock.advance(COOL_DOWN_SECONDS)
    stage.model.by_request = lambda _: WORDY

    assert (await compact_now(stage)).outcome == "skipped"

    assert stage.dependencies.breakers.reading("scripted").state is BreakerState.CLOSED
