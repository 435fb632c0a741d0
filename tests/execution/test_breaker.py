"""The breaker of a summary model: opens after failures in a row, lets one call through later, and never latches."""

import asyncio
from contextlib import suppress

import pytest

from fakes.compactions import SUMMARY, compact_now, fill
from fakes.manual_clock import ManualClock
from fakes.scripted_model import Fail, Hang, Say
from fakes.stage import Stage, open_stage, with_context
from fakes.waiting import HANG_SECONDS
from throughline.context.policy import SummaryPolicy
from throughline.db.database import Database
from throughline.domain.errors import ModelUnavailable
from throughline.execution.breaker import (
    COOL_DOWN_SECONDS,
    FAILURES_TO_OPEN,
    MOST_RECORDS,
    BreakerReading,
    Breakers,
    BreakerState,
)

AWAY = Fail(ModelUnavailable("away"))


def opened(clock: ManualClock) -> Breakers:
    breakers = Breakers(clock)
    for _ in range(FAILURES_TO_OPEN):
        assert breakers.acquire("model")
        breakers.failed("model")
    return breakers


def test_the_third_failure_in_a_row_opens_it_for_that_model_alone() -> None:
    breakers = opened(ManualClock())

    assert not breakers.acquire("model")
    assert breakers.acquire("another")


def test_a_success_in_between_begins_the_count_anew() -> None:
    breakers = Breakers(ManualClock())
    for _ in range(5):
        breakers.failed("model")
        breakers.failed("model")
        breakers.succeeded("model")

    assert breakers.acquire("model")


def test_after_the_cool_down_one_call_goes_through_and_its_success_closes_it() -> None:
    clock = ManualClock()
    breakers = opened(clock)
    clock.advance(COOL_DOWN_SECONDS)

    assert breakers.acquire("model")
    assert not breakers.acquire("model")
    breakers.succeeded("model")
    assert breakers.acquire("model")
    assert breakers.acquire("model")


def test_a_further_failure_keeps_it_open_for_another_cool_down() -> None:
    clock = ManualClock()
    breakers = opened(clock)
    clock.advance(COOL_DOWN_SECONDS)
    assert breakers.acquire("model")
    breakers.failed("model")

    clock.advance(COOL_DOWN_SECONDS - 1)
    assert not breakers.acquire("model")
    clock.advance(1)
    assert breakers.acquire("model")


def test_a_deciding_call_that_decided_nothing_lets_the_next_one_through_at_once() -> None:
    clock = ManualClock()
    breakers = opened(clock)
    breakers.released("model")
    assert not breakers.acquire("model")
    clock.advance(COOL_DOWN_SECONDS)
    assert breakers.acquire("model")

    breakers.released("model")

    assert breakers.acquire("model")


def test_a_deciding_call_that_was_never_heard_of_again_is_no_latch() -> None:
    clock = ManualClock()
    breakers = opened(clock)
    clock.advance(COOL_DOWN_SECONDS)
    assert breakers.acquire("model")

    clock.advance(COOL_DOWN_SECONDS)

    assert breakers.acquire("model")


def test_reading_it_tells_how_long_it_stays_open_and_changes_nothing() -> None:
    clock = ManualClock()
    breakers = opened(clock)
    clock.advance(COOL_DOWN_SECONDS - 20)

    assert breakers.reading("model") == BreakerReading(BreakerState.OPEN, 20)
    assert breakers.reading("another") == BreakerReading(BreakerState.CLOSED)
    clock.advance(20)
    assert breakers.reading("model") == breakers.reading("model") == BreakerReading(BreakerState.HALF_OPEN)
    assert breakers.acquire("model")
    assert breakers.reading("model") == BreakerReading(BreakerState.HALF_OPEN)
    breakers.succeeded("model")
    assert breakers.reading("model") == BreakerReading(BreakerState.CLOSED)


def test_of_very_many_the_one_that_failed_longest_ago_is_forgotten() -> None:
    breakers = opened(ManualClock())

    for number in range(MOST_RECORDS - 1):
        breakers.failed(f"model {number}")
    assert not breakers.acquire("model")
    breakers.failed("one more")

    assert breakers.acquire("model")


@pytest.fixture
async def stage(database: Database) -> Stage:
    agent = with_context(window=8192, min_recent_messages=2, summary=SummaryPolicy(timeout_seconds=HANG_SECONDS))
    stage = await open_stage(database, agent=agent)
    await fill(stage, 4)
    return stage


async def test_a_summariser_that_is_down_is_left_alone_and_asked_again_later(stage: Stage) -> None:
    stage.model.by_request = lambda _: AWAY
    for _ in range(FAILURES_TO_OPEN):
        assert (await compact_now(stage)).outcome == "failed"
    asked = len(stage.model.requests)
    stage.model.by_request = lambda _: Say(SUMMARY)

    resting = await compact_now(stage)
    stage.clock.advance(COOL_DOWN_SECONDS)
    back = await compact_now(stage)

    assert asked == 2 * FAILURES_TO_OPEN
    assert (resting.outcome, resting.session.summary_through_position) == ("failed", 0)
    assert (back.outcome, len(stage.model.requests)) == ("adopted", asked + 1)
    assert stage.dependencies.breakers.acquire("scripted")


async def test_a_summariser_that_is_too_slow_three_times_is_no_longer_waited_for(database: Database) -> None:
    agent = with_context(window=8192, min_recent_messages=2, summary=SummaryPolicy(timeout_seconds=1))
    stage = await open_stage(database, agent=agent)
    stage.model.by_request = lambda _: Hang()
    await fill(stage, 4)

    for _ in range(FAILURES_TO_OPEN + 2):
        assert (await compact_now(stage)).outcome == "failed"

    assert len(stage.model.requests) == FAILURES_TO_OPEN


async def test_a_cancelled_compaction_is_no_failure_and_leaves_the_way_free(stage: Stage) -> None:
    stage.model.by_request = lambda _: AWAY
    for _ in range(FAILURES_TO_OPEN):
        await compact_now(stage)
    stage.clock.advance(COOL_DOWN_SECONDS)
    stage.model.by_request = lambda _: Hang()
    asked = len(stage.model.requests)

    under_way = asyncio.create_task(compact_now(stage))
    while len(stage.model.requests) == asked:
        await asyncio.sleep(0.01)
    under_way.cancel()
    with suppress(asyncio.CancelledError):
        await under_way

    assert stage.dependencies.breakers.acquire("scripted")
