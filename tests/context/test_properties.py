"""The engine's promises over random sessions; `make fuzz` plays many more, `fuzz.py` says what is tried."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context.fuzz import LEAST_SHARE, REACHABLE, Tally, play_and_judge
from context.ladder_judge import LADDER_PROMISES
from context.session_judge import PROMISES

SESSIONS = 1000

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sessions")]  # one process plays them, for all tests


@cache
def played() -> Tally:
    return play_and_judge(range(SESSIONS))


@pytest.mark.parametrize("promise", [*PROMISES, *LADDER_PROMISES, "always_fits", "never_raises"])
def test_no_session_breaks_a_promise(promise: str) -> None:
    assert [fault for fault in played().faults if fault[1] == promise] == []


@pytest.mark.parametrize("name", REACHABLE)
def test_the_generator_is_not_tame(name: str) -> None:
    assert played().reached[name] >= LEAST_SHARE * SESSIONS


@given(st.integers(SESSIONS, 2**40))
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_other_sessions_keep_them_too(seed: int) -> None:
    assert play_and_judge([seed]).faults == []
