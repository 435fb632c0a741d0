"""What an outer loop outlives, and what came of somebody else's code."""

import asyncio
import sys

import pytest
import structlog
from structlog.testing import capture_logs

from throughline.domain.errors import LeaseLost
from throughline.execution.error_boundary import ErrorBoundary, Raised, Returned, outcome_of, outcome_of_awaiting

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
