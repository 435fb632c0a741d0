"""The engine's promises over random sessions; `make fuzz` plays many more, `fuzz.py` says what is tried."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context.fuzz import LEAST_SHARE, REACHABLE, play_and_judge
from context.mutants import MUTANTS
from context.session_judge import PROMISES
from context.stages_judge import LADDER_PROMISES

SESSIONS = 500
RARE_SESSIONS = (591, 957)
"""The first ones that show `no prune` and `a prepared cut may tear a group`; all other mutants show before 350."""

SEEDS_OF_PAST_FAULTS = (
    98_983,  # notes that left after the newest step was folded would have had room for it
    37_174,  # a newest step within a tool's share stays whole while older messages are trimmed
    1_026_656,  # a pin shown a few tokens above its level is cut further before the user's text is
    3_008_160,  # a pinned call's name alone is too much for a window of 200 tokens: the pin goes last
    3_029_039,  # calls that cannot be cut leave less for texts: one fitting is enough, the next changes nothing
    6_141_375,  # an image that was cut before needs no squeezing: its step is folded as it is
    6_119_125,  # the newest step is pinned: it stays, and the one before it is folded after it was squeezed
    3_035_875,  # a user's text that was cut to next to nothing does not grow again
)
SEEDS_OF_EVERY_RUN = (
    *range(20),
    *sorted({mutant.first for mutant in MUTANTS} - {*range(20)}),
    *SEEDS_OF_PAST_FAULTS,
)
"""The first ones, and those whose sessions break a promise if a known fault, past or of a mutant, is made again."""

pytestmark = pytest.mark.slow


def test_the_sessions_that_would_reveal_known_faults_break_no_promise() -> None:
    assert play_and_judge(SEEDS_OF_EVERY_RUN).faults == []


@pytest.mark.proof
@pytest.mark.timeout(1200)  # 25 s of both cores, which others may be using, too
def test_no_session_breaks_a_promise_and_the_generator_is_not_tame(subtests: pytest.Subtests) -> None:
    """One test: the sessions are played once, whatever process judges them."""
    played = play_and_judge((*range(SESSIONS), *RARE_SESSIONS))

    for promise in (*PROMISES, *LADDER_PROMISES, "always_fits", "never_raises"):
        with subtests.test("promise", promise=promise):
            assert [fault for fault in played.faults if fault[1] == promise] == []
    for name in REACHABLE:
        with subtests.test("reachable", name=name):
            assert played.reached[name] >= LEAST_SHARE * SESSIONS


@pytest.mark.proof
@given(st.integers(1000, 2**40))
@settings(deadline=None, derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_other_sessions_keep_them_too(seed: int) -> None:
    """The same ones in every run: looking for further faults is what `make fuzz` is for."""
    assert play_and_judge([seed]).faults == []
