"""Summary models that write slowly: measured, waited for between turns, not begun in turns, never taken for broken."""

import time
from collections.abc import AsyncGenerator

import pytest

from fakes.compactions import SUMMARY, compact_now, fill, open_summarising, prepare_one
from fakes.manual_clock import ManualClock
from fakes.scripted_model import Hang, Say, ScriptedModel, Step
from fakes.silent_metrics import SilentMetrics
from throughline.context.policy import SummaryPolicy
from throughline.db.database import Database
from throughline.domain.message import Role
from throughline.domain.prompt import ModelEvent, ModelRequest, Prompt, PromptMessage
from throughline.execution.breaker import FAILURES_TO_OPEN, Breakers
from throughline.turn.prompting.ready_agent import model_keys
from throughline.turn.summary import prepare
from throughline.turn.summary.summariser import Ask, Summariser
from throughline.turn.summary.summariser_calls import (
    MOST_SECONDS,
    VALID_SECONDS,
    Heard,
    ModelPaces,
    SummariserCalls,
    SummaryTooSlow,
)

FOUR_A_SECOND = Heard(tokens=40, seconds=10.0, at=0.0, is_whole=False)


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
    stage.dependencies.paces.record("scripted", FOUR_A_SECOND)

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
        await calls.ask(summariser, Ask(Prompt("", (PromptMessage(Role.USER, "?"),)), max_tokens=100))

    assert calls.paces.tokens_per_second(summariser.key) == pytest.approx(len("four more then") / 0.25)


async def test_a_preparation_waits_as_long_as_a_slow_model_needs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "PREPARE_SECONDS", 0.05)
    stage = await open_summarising(database, timeout_seconds=0.05)
    await fill(stage, 20)
    stage.dependencies.paces.record("scripted", FOUR_A_SECOND)

    def slowly(_request: ModelRequest) -> Step:
        time.sleep(0.2)
        return Say(SUMMARY)

    stage.model.by_request = slowly

    assert await prepare_one(stage)


def test_the_time_limit_follows_from_the_speed_within_bounds() -> None:
    paces = ModelPaces()
    unknown = paces.patient_seconds("small", 500, at_least=60)
    paces.record("small", FOUR_A_SECOND)
    paces.record("small", Heard(tokens=0, seconds=10.0, at=1.0, is_whole=False))

    assert unknown == 60
    assert paces.patient_seconds("small", 500, at_least=60) == 250
    assert paces.patient_seconds("small", 10, at_least=60) == 60
    assert paces.patient_seconds("small", 5_000, at_least=60) == MOST_SECONDS


def test_the_length_of_the_last_whole_answer_decides_whether_the_next_can_end() -> None:
    paces = ModelPaces()
    paces.record("small", Heard(tokens=32, seconds=8.0, at=0.0, is_whole=True))

    assert not paces.is_too_slow("small", 500, seconds=10, now=1.0)
    assert paces.is_too_slow("small", 500, seconds=7, now=1.0)
    assert not paces.is_too_slow("other", 500, seconds=7, now=1.0)
