"""The breaker of a summary model: opens after failures in a row, lets one call through later, and never latches."""

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
import structlog
from structlog.testing import capture_logs

from fakes.compactions import SUMMARY, compact_now, fill
from fakes.scripted_model import Fail, Hang, Say
from fakes.stage import Stage, open_stage, with_context
from fakes.waiting import HANG_SECONDS, ManualClock
from throughline.context.policy import SummaryPolicy
from throughline.db.database import Database
from throughline.domain.basic_types import UserId
from throughline.domain.errors import (
    LeaseLost,
    ModelUnavailable,
    SettingInvalid,
    causes_of,
    class_and_text,
    class_names,
    only_cause_of,
)
from throughline.execution.breaker import (
    COOL_DOWN_SECONDS,
    FAILURES_TO_OPEN,
    MOST_RECORDS,
    BreakerReading,
    Breakers,
    BreakerState,
)
from throughline.execution.call_plugin import import_plugin
from throughline.execution.compute_threads import LimitReached, OwnerLimits
from throughline.execution.error_boundary import (
    ErrorBoundary,
    Raised,
    Returned,
    outcome_of,
    outcome_of_awaiting,
    running_concurrently,
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


def test_a_success_in_between_begins_the_count_again() -> None:
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


ANNA, BERT, CARL = (UserId(UUID(int=number)) for number in (1, 2, 3))


def test_an_owner_keeps_to_a_share() -> None:
    places = OwnerLimits(most=5, most_of_owner=2)

    assert [places.take(ANNA), places.take(ANNA), places.take(ANNA)] == [None, None, LimitReached.BY_OWNER]
    assert places.take(BERT) is None


def test_all_keep_to_what_there_is() -> None:
    places = OwnerLimits(most=3, most_of_owner=2)

    assert [places.take(ANNA), places.take(ANNA), places.take(BERT)] == [None] * 3
    assert [places.take(CARL), places.take(None)] == [LimitReached.BY_ALL] * 2


def test_what_belongs_to_nobody_has_no_share() -> None:
    places = OwnerLimits(most=3, most_of_owner=1)

    assert [places.take(None) for _ in range(3)] == [None] * 3


def test_a_place_given_back_is_free() -> None:
    places = OwnerLimits(most=1, most_of_owner=1)
    places.take(ANNA)
    places.give_back(ANNA)

    assert places.take(BERT) is None


async def test_the_task_is_cancelled_at_the_end_of_the_block() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with running_concurrently(work, "wait") as task:
        await begun.wait()

    assert task.cancelled()


async def test_a_block_that_is_never_entered_begins_nothing() -> None:
    calls: list[str] = []

    def begin() -> Coroutine[object, object, None]:
        calls.append("begun")
        return asyncio.sleep(0)

    running_concurrently(begin, "nothing")

    assert calls == []


FIRST, SECOND = KeyError("a"), OSError("b")


def test_of_a_group_the_exceptions_in_it_are_named() -> None:
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [FIRST, SECOND]), KeyError("a")])

    assert class_names(group) == "KeyError, OSError"
    assert class_and_text(group) == "KeyError: 'a'; OSError: b"
    assert only_cause_of(group) is group


def test_a_single_exception_is_its_own_cause_at_any_depth() -> None:
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [FIRST])])

    assert only_cause_of(group) is only_cause_of(FIRST) is FIRST
    assert class_and_text(SECOND) == "OSError: b"


def test_a_group_that_is_too_large_or_too_deep_says_what_was_seen() -> None:
    deep: Exception = FIRST
    for _ in range(1_000):
        deep = ExceptionGroup("deeper", [deep])

    assert causes_of(deep) == (deep,)
    assert len(causes_of(ExceptionGroup("wide", [OSError(str(n)) for n in range(1_000)]))) == 3


def test_a_package_missing_inside_a_group_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "try:\n    import no_such_package\nexcept ImportError as error:\n    raise ExceptionGroup('x', [error])\n"
    (tmp_path / "needs_a_package.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(SettingInvalid, match="there is no module 'no_such_package'; put its file beside"):
        import_plugin("needs_a_package:run", kind="tool")


log = structlog.get_logger(__name__)


async def raising(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


async def test_what_a_block_raises_stays_inside_and_is_logged_without_its_text() -> None:
    with capture_logs() as logs, ErrorBoundary(log.error, "looking broke", readers=2) as looking:
        await raising(ValueError("a user's own words"))

    assert isinstance(looking.error, ValueError)
    (told,) = logs
    assert (told["event"], told["readers"], told["error"], told["log_level"]) == (
        "looking broke",
        2,
        "ValueError",
        "error",
    )
    assert told["where"].startswith("raising:")
    assert "words" not in str(told)


def test_a_block_that_raises_nothing_is_not_mentioned() -> None:
    with capture_logs() as logs, ErrorBoundary(log.error, "looking broke") as looking:
        pass

    assert (looking.error, logs) == (None, [])


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(), LeaseLost("gone")])
def test_cancellation_the_end_of_the_process_and_what_was_excepted_go_on(error: BaseException) -> None:
    with (
        capture_logs() as logs,
        pytest.raises(type(error)),
        ErrorBoundary(log.error, "looking broke", lets_through=(LeaseLost,)),
    ):
        raise error

    assert logs == []


async def test_somebody_elses_error_is_a_value() -> None:
    error = ValueError()

    assert outcome_of(lambda: 3) == Returned(3)
    assert isinstance(outcome_of(lambda: int("three")), Raised)
    assert await outcome_of_awaiting(raising(error)) == Raised(error)


async def test_cancellation_goes_through_what_awaits_somebody_elses_code() -> None:
    with pytest.raises(asyncio.CancelledError):
        await outcome_of_awaiting(raising(asyncio.CancelledError()))


def test_what_ends_a_process_is_a_value_of_somebody_elses_code() -> None:
    outcome = outcome_of(lambda: sys.exit(3))

    assert isinstance(outcome, Raised)
    assert isinstance(outcome.error, SystemExit)
