"""Summaries written ahead: when, how far, extended, used without a model call, and dropped when they come too late."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from fakes.compactions import (
    SUMMARY,
    as_adoption,
    compact_now,
    fill,
    loaded,
    open_summarising,
    positions_read,
    prepare_one,
    store,
)
from fakes.conversations import adoption_of, segment_of
from fakes.own_hooks import OwnHooks, Remembers
from fakes.scripted_model import Fail, Hang, Say, ScriptedModel, Step
from fakes.silent_metrics import SilentMetrics
from fakes.stage import Stage, open_stage, with_context
from fakes.waiting import ManualClock
from throughline.context.plan_context import plan_context
from throughline.context.policy import Adopt, SummaryPolicy, SummaryShape
from throughline.context.summaries.summary_prompt import TextRequest
from throughline.db.database import Database
from throughline.domain.errors import ModelUnavailable
from throughline.domain.message import Role
from throughline.domain.prompt import ModelEvent, ModelRequest, Prompt, PromptMessage
from throughline.domain.summary import CompactionOutcome, CompactionResult, SummaryState
from throughline.execution.breaker import FAILURES_TO_OPEN, Breakers
from throughline.ports.hooks import Decision
from throughline.turn.prompting.planning import at_rest, make_context_input
from throughline.turn.prompting.ready_agent import model_keys
from throughline.turn.summary import prepare
from throughline.turn.summary.compact import compact
from throughline.turn.summary.compaction import Compaction
from throughline.turn.summary.model_paces import MOST_SECONDS, VALID_SECONDS, ModelPaces
from throughline.turn.summary.prepare import prepare_next
from throughline.turn.summary.summariser import Summariser
from throughline.turn.summary.summariser_calls import SummariserCalls, SummaryTooSlow

SHAPES = [SummaryShape.ROLLING, SummaryShape.TIERED]


async def open_with(database: Database, **policy: object) -> Stage:
    wanted = {"window": 8192, "min_recent_messages": 2, "max_messages_before_summary": 10, **policy}
    stage = await open_stage(database, agent=with_context(**wanted))
    stage.model.by_request = lambda _: Say("## Intent\nThe user counts [#1-#2].")
    return stage


async def adopt_what_is_prepared(stage: Stage) -> CompactionResult:
    agent, conversation = await at_rest(stage.dependencies, await stage.reload())
    plan = as_adoption(plan_context(make_context_input(agent, conversation, None)))
    return (await compact(stage.dependencies, Compaction(agent, conversation, plan)))[2]


async def prepared_through(stage: Stage) -> int | None:
    parts = await stage.database.summaries.load_parts(stage.session.id, SummaryState.PREPARED)
    return None if parts is None else parts[0].through_position


async def test_nothing_is_prepared_before_a_trigger_fires(database: Database) -> None:
    stage = await open_with(database)
    await fill(stage, 4)

    assert not await prepare_one(stage)
    assert stage.model.requests == []


@pytest.mark.parametrize(
    "policy",
    [
        {"max_messages_before_summary": 10},
        {"max_messages_before_summary": 1000, "max_tokens_before_summary": 400},
        {"max_messages_before_summary": 1000, "window": 2048, "response_reserve": 256},
    ],
    ids=["messages", "tokens", "soft mark"],
)
async def test_all_but_the_newest_messages_are_prepared_and_the_session_stays_as_it_is(
    database: Database, policy: dict[str, object]
) -> None:
    stage = await open_with(database, **policy)
    await fill(stage, 10, words=60)
    before = await stage.reload()

    assert await prepare_one(stage)

    assert await stage.reload() == before
    assert await prepared_through(stage) == 18
    assert positions_read(stage.model.requests) == list(range(1, 19))


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_next_one_extends_what_is_prepared_and_reads_nothing_twice(
    database: Database, shape: SummaryShape
) -> None:
    stage = await open_with(database, summary=SummaryPolicy(shape=shape))
    for _ in range(3):
        await fill(stage, 6)
        assert await prepare_one(stage)

    assert await prepared_through(stage) == 34
    assert positions_read(stage.model.requests) == list(range(1, 35))
    assert not await prepare_one(stage)


async def test_what_is_prepared_is_adopted_without_a_model_call(database: Database) -> None:
    stage = await open_with(database)
    await fill(stage, 6)
    await prepare_one(stage)
    asked = len(stage.model.requests)

    done = await adopt_what_is_prepared(stage)

    session = await stage.reload()
    assert (done.outcome, done.session) == ("adopted", session)
    assert (session.summary_through_position, session.summary_version) == (10, 1)
    assert [message.position for message in (await loaded(stage)).history] == [11, 12]
    assert len(stage.model.requests) == asked
    assert done.tokens_after < done.tokens_before


async def test_a_prepared_summary_that_somebody_overtook_is_let_go(database: Database) -> None:
    stage = await open_with(database)
    await fill(stage, 6)
    await prepare_one(stage)
    agent, conversation = await at_rest(stage.dependencies, await stage.reload())
    plan = as_adoption(plan_context(make_context_input(agent, conversation, None)))
    await compact_now(stage, "first")

    _, _, done = await compact(stage.dependencies, Compaction(agent, conversation, plan))

    assert (done.outcome, done.is_stale) == ("skipped", True)
    assert (await stage.reload()).summary_version == 1


async def test_a_request_goes_on_from_what_is_prepared_and_one_with_instructions_does_not(database: Database) -> None:
    for instructions, read in (("", [11, 12, 13, 14]), ("from scratch", list(range(1, 15)))):
        stage = await open_with(database)
        await fill(stage, 6)
        await prepare_one(stage)
        await fill(stage, 2)
        stage.model.requests.clear()

        done = await compact_now(stage, instructions)

        assert done.session.summary_through_position == 14
        assert positions_read(stage.model.requests) == read


async def test_one_that_comes_too_late_is_dropped_quietly_and_its_price_counted(database: Database) -> None:
    gate = asyncio.Event()
    stage = await open_with(database)
    steps = [Say("slow words", gate=gate), Say("quick words")]
    stage.model.by_request = lambda _: steps.pop(0)
    await fill(stage, 6)
    slow = asyncio.create_task(prepare_one(stage))
    while not stage.model.requests:
        await asyncio.sleep(0.01)
    await compact_now(stage, "quickly")
    gate.set()

    assert not await slow

    assert await prepared_through(stage) is None
    assert [row["reason"] for row in stage.metrics.of("summary_unused")] == ["stale"]
    assert "quick words" in (await stage.reload()).conversation_summary


async def test_a_summariser_that_is_down_is_not_called_any_more_after_three_summaries(database: Database) -> None:
    """Each of the three is tried twice."""
    stage = await open_with(database)
    stage.model.by_request = lambda _: Fail(ModelUnavailable("away"))
    await fill(stage, 6)

    for _ in range(5):
        assert not await prepare_one(stage)

    assert len(stage.model.requests) == 6
    assert await prepared_through(stage) is None


async def test_the_hook_is_asked_before_one_is_written_and_may_cancel_it(database: Database) -> None:
    stage = await open_with(database, pre_compact="hooks:own")
    hook = Remembers(Decision(cancel=True))
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks({"hooks:own": hook}))
    await fill(stage, 6)

    assert not await prepare_one(stage)

    assert [(told.trigger, told.message_count, told.must_compact) for told in hook.told] == [("auto", 10, False)]
    assert stage.model.requests == []


async def test_the_hook_may_cancel_the_adoption_of_what_is_prepared(database: Database) -> None:
    stage = await open_with(database, pre_compact="hooks:own")
    await fill(stage, 6)
    assert await prepare_one(stage)
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks({"hooks:own": Remembers(Decision(cancel=True))}))

    done = await adopt_what_is_prepared(stage)

    assert (done.outcome, (await stage.reload()).summary_version) == ("cancelled", 0)
    assert await prepared_through(stage) == 10


async def test_a_session_that_is_gone_is_no_trouble(database: Database) -> None:
    stage = await open_with(database)
    session = await stage.reload()
    await database.sessions.delete(stage.owner_id, session.id)

    assert (await prepare_next(stage.dependencies, session)).outcome is CompactionOutcome.SKIPPED


async def test_one_that_makes_no_prompt_smaller_waits_for_growth_and_asks_no_hook(database: Database) -> None:
    hook = Remembers()
    stage = await open_with(database, max_messages_before_summary=6, adopt=Adopt.IMMEDIATELY, pre_compact="hooks:own")
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks({"hooks:own": hook}))
    await fill(stage, 6, words=5)
    through, text = (await stage.messages())[7], "many words " * 400
    segment = await stage.database.summaries.save_segment(stage.session.id, segment_of(through, text))
    tokens = stage.dependencies.make_counter("chars").count(text)
    await stage.database.summaries.prepare_summary(replace(adoption_of(0, through, segment), token_count=tokens))

    for _ in range(3):
        await stage.turn("and now?")

    assert [row["outcome"] for row in stage.metrics.of("compaction_finished")] == ["skipped"]
    assert hook.told == []
    assert (await stage.reload()).summary_version == 0


class SlowModel(ScriptedModel):
    """Writes a piece of its answer each quarter of a second of `clock`."""

    clock: ManualClock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        async for event in super().stream(request):
            self.clock.advance(0.25)
            yield event


async def test_a_model_that_was_writing_when_the_turns_time_was_up_is_not_taken_for_broken(database: Database) -> None:
    stage = await open_summarising(database, timeout_seconds=1)
    await fill(stage, 20)
    stage.model.by_request = lambda _: Hang("## Intent\nThe user")

    ended = [(await compact_now(stage)).outcome for _ in range(FAILURES_TO_OPEN + 1)]

    assert set(ended) == {"failed"}
    assert len(stage.model.requests) == FAILURES_TO_OPEN + 1
    assert {stage.dependencies.breakers.failures(key) for key in model_keys("scripted")} == {0}
    assert {row["reason"] for row in stage.metrics.of("summary_failed")} == {"too_slow"}


async def test_a_turn_begins_no_call_that_cannot_end_in_its_time_until_the_speed_is_old(database: Database) -> None:
    stage = await open_summarising(database)
    await fill(stage, 20)
    stage.model.by_request = lambda _: Say(SUMMARY)
    stage.dependencies.paces.record("scripted", 40, 10.0, now=0.0, is_whole=False)

    at_once = await compact_now(stage)
    asked_at_once = len(stage.model.requests)
    stage.clock.advance(VALID_SECONDS + 1)
    later = await compact_now(stage)

    assert (at_once.outcome, asked_at_once, later.outcome) == ("failed", 0, "adopted")
    assert "4 tokens a second" in at_once.detail
    assert {stage.dependencies.breakers.failures(key) for key in model_keys("scripted")} == {0}


async def test_the_speed_is_measured_in_a_call_that_was_cut_off() -> None:
    model, clock = SlowModel(), ManualClock()
    model.clock = clock
    model.script(Hang("four more then"))
    summariser = Summariser(model, SummaryPolicy(), len, max_tokens=100, window_tokens=8192)
    calls = SummariserCalls(clock, SilentMetrics(), Breakers(clock), "", deadline=100.0, until=0.2)

    with pytest.raises(SummaryTooSlow):
        await calls.ask(summariser, TextRequest(Prompt("", (PromptMessage(Role.USER, "?"),)), max_tokens=100))

    assert calls.paces.tokens_per_second(summariser.key) == pytest.approx(len("four more then") / 0.25)


async def test_a_preparation_waits_as_long_as_a_slow_model_needs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "PREPARE_SECONDS", 0.05)
    stage = await open_summarising(database, timeout_seconds=0.05)
    await fill(stage, 20)
    stage.dependencies.paces.record("scripted", 40, 10.0, now=0.0, is_whole=False)

    def slowly(_request: ModelRequest) -> Step:
        time.sleep(0.2)
        return Say(SUMMARY)

    stage.model.by_request = slowly

    assert await prepare_one(stage)


def test_the_time_limit_follows_from_the_speed_within_bounds() -> None:
    paces = ModelPaces()
    unknown = paces.patient_seconds("small", 500, at_least=60)
    paces.record("small", 40, 10.0, now=0.0, is_whole=False)
    paces.record("small", 0, 10.0, now=1.0, is_whole=False)

    assert unknown == 60
    assert paces.patient_seconds("small", 500, at_least=60) == 250
    assert paces.patient_seconds("small", 10, at_least=60) == 60
    assert paces.patient_seconds("small", 5_000, at_least=60) == MOST_SECONDS


def test_the_length_of_the_last_whole_answer_decides_whether_the_next_can_end() -> None:
    paces = ModelPaces()
    paces.record("small", 32, 8.0, now=0.0, is_whole=True)

    assert not paces.is_too_slow("small", 500, seconds=10, now=1.0)
    assert paces.is_too_slow("small", 500, seconds=7, now=1.0)
    assert not paces.is_too_slow("other", 500, seconds=7, now=1.0)


async def test_a_prepared_summary_grows_by_all_messages_it_stands_for(database: Database) -> None:
    stage = await open_with(database, window=60_000, summary=SummaryPolicy(max_tokens=8000))
    told = [f"My aunt number {number} lives in Rome and pays {100 + number} euros." for number in range(1, 61)]
    for first in range(0, len(told), 12):
        await store(stage, *((Role.USER, text) for text in told[first : first + 12]))
        assert await prepare_one(stage)

    parts = await stage.database.summaries.load_parts(stage.session.id, SummaryState.PREPARED)
    assert parts is not None
    shown = [one for one in told if one in parts[0].text]
    covered = sum(len(one) for one in told[: parts[0].through_position])
    assert len(parts[0].text) >= 0.3 * covered
    assert len(shown) >= 0.2 * len(told)
