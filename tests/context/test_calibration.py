"""Learning how a provider counts."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughline.context.calibration import (
    STEP,
    Calibration,
    factor,
    learn,
    learn_overflow,
    scale,
    stepped,
    trusted_window,
    unscale,
)

WINDOW = 8192


@given(st.integers(0, 10_000_000), st.floats(0.5, 4.5))
def test_scaling_back_and_forth_never_exceeds(tokens: int, by: float) -> None:
    assert scale(unscale(tokens, by), by) <= tokens


@pytest.mark.parametrize("true_ratio", [0.68, 0.9, 1.0, 1.25, 2.2, 3.0])
@pytest.mark.parametrize("first_prompt", [150, 400, 3000])
def test_three_turns_are_enough_for_five_percent(true_ratio: float, first_prompt: int) -> None:
    known = None
    for turn in range(3):
        ours = first_prompt * (turn + 1)
        known = learn(known, ours=ours, provider=int(ours * true_ratio), configured_window=WINDOW)

    estimate = factor(known, is_known_tokenizer=False)
    assert 0.99 < estimate / true_ratio < 1.075
    assert known is not None
    assert abs(known.ratio / true_ratio - 1) < 0.05


def test_the_framing_of_a_tiny_prompt_is_no_ratio() -> None:
    known = learn(None, ours=12, provider=60, configured_window=WINDOW)

    assert known.ratio < 2.2


def test_a_higher_ratio_is_believed_at_once_and_a_lower_one_slowly() -> None:
    known = Calibration(ratio=1.25, samples=20)

    up = learn(known, ours=5000, provider=11_000, configured_window=WINDOW)
    down = learn(up, ours=5000, provider=6250, configured_window=WINDOW)

    assert up.ratio > 2.18
    assert down.ratio > 2.05


@given(st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 10_000_000)), max_size=30))
def test_ratios_stay_bounded_whatever_is_reported(reports: list[tuple[int, int]]) -> None:
    known = None
    for ours, provider in reports:
        known = learn(known, ours=ours, provider=provider, configured_window=WINDOW)

    assert 0.5 <= factor(known, is_known_tokenizer=False) <= 4.5


def test_usage_of_nothing_teaches_nothing() -> None:
    known = Calibration(ratio=1.3, samples=4)

    assert learn(known, ours=0, provider=0, configured_window=WINDOW) == known
    assert factor(learn(None, ours=0, provider=10, configured_window=WINDOW), is_known_tokenizer=False) == 1.15


def test_unknown_tokenizers_start_with_a_margin() -> None:
    assert factor(None, is_known_tokenizer=False) == 1.15
    assert factor(None, is_known_tokenizer=True) == 1.03


@given(
    st.one_of(st.none(), st.builds(Calibration, st.floats(0.5, 3.5), st.integers(1, 9))),
    st.one_of(st.none(), st.integers(1, 20_000)),
    st.one_of(st.none(), st.integers(1, 20_000)),
)
def test_after_a_refusal_the_next_prompt_is_smaller(
    known: Calibration | None, prompt_tokens: int | None, window_tokens: int | None
) -> None:
    learned = learn_overflow(
        known, ours=6000, prompt_tokens=prompt_tokens, window_tokens=window_tokens, configured_window=WINDOW
    )

    assert learned.ratio > (1.0 if known is None else known.ratio)


def refused(known: Calibration | None, *, ours: int, prompt: int | None, window: int | None) -> Calibration:
    return learn_overflow(known, ours=ours, prompt_tokens=prompt, window_tokens=window, configured_window=WINDOW)


def test_a_refusal_whose_numbers_agree_with_ours_teaches_ratio_and_window() -> None:
    learned = refused(Calibration(ratio=1.0, samples=3), ours=7000, prompt=8400, window=6000)

    assert learned.ratio == 1.2
    assert learned.learned_window == 6000


@pytest.mark.parametrize("window", [300, WINDOW // 2 - 1, WINDOW, WINDOW + 1, 128_000])
def test_a_window_far_below_or_not_below_the_configured_one_is_not_believed(window: int) -> None:
    learned = refused(Calibration(ratio=1.0, samples=3), ours=900, prompt=900, window=window)

    assert learned.learned_window is None
    assert trusted_window(learned, WINDOW) == WINDOW


@pytest.mark.parametrize("prompt", [700, 1300, 1_000_000])
def test_an_error_that_counts_unlike_us_teaches_no_window_and_only_a_moderate_ratio(prompt: int) -> None:
    learned = refused(Calibration(ratio=1.0, samples=3), ours=1000, prompt=prompt, window=6000)

    assert learned.learned_window is None
    assert 1.0 < learned.ratio <= 1.5


def test_the_first_count_of_an_unknown_tokenizer_is_believed_but_not_its_window() -> None:
    learned = refused(None, ours=5000, prompt=11_000, window=6000)

    assert learned == Calibration(ratio=2.2, samples=1)


def test_a_refusal_only_shrinks_the_learned_window() -> None:
    known = Calibration(ratio=1.0, samples=1, learned_window=5000)

    assert refused(known, ours=7000, prompt=None, window=6000).learned_window == 5000
    assert refused(known, ours=7000, prompt=None, window=4500).learned_window == 4500


def test_a_learned_window_that_is_not_plausible_for_the_configured_one_is_not_used() -> None:
    assert trusted_window(None, WINDOW) == WINDOW
    assert trusted_window(Calibration(1.0, 1, learned_window=6000), WINDOW) == 6000
    assert trusted_window(Calibration(1.0, 1, learned_window=300), WINDOW) == WINDOW
    assert trusted_window(Calibration(1.0, 1, learned_window=9000), WINDOW) == WINDOW


def test_a_learned_window_is_forgotten_once_a_larger_prompt_was_accepted() -> None:
    known = Calibration(ratio=1.0, samples=1, learned_window=6000)

    assert learn(known, ours=6000, provider=6001, configured_window=WINDOW).learned_window is None


def test_a_learned_window_grows_back_with_every_prompt_that_is_accepted() -> None:
    known = Calibration(ratio=1.0, samples=1, learned_window=WINDOW // 2)

    for _ in range(40):
        known = learn(known, ours=1000, provider=1000, configured_window=WINDOW)

    assert trusted_window(known, WINDOW) == WINDOW


def test_a_drifting_mix_of_texts_never_passes_the_estimate_after_the_first_turns() -> None:
    rng = random.Random(7)
    known, ours, theirs, over = None, 300, 360, 0
    kinds = [2.2, 1.25, 1.6, 2.4, 0.8]
    for turn in range(400):
        if ours > 5000:
            ours, theirs = ours // 3, theirs // 3
        added = rng.randrange(20, 300)
        ours, theirs = ours + added, theirs + int(added * kinds[turn // 20 % 5] * rng.uniform(0.9, 1.1))
        estimate = ours * factor(known, is_known_tokenizer=False)
        over += turn > 2 and theirs > estimate * 1.05
        known = learn(known, ours=ours, provider=theirs, configured_window=WINDOW)

    assert over <= 4
    assert all(a <= b for a, b in pairwise([0.5, factor(known, is_known_tokenizer=False), 4.3]))


@given(st.floats(0.5, 4.5))
def test_a_stepped_factor_is_the_next_of_few(by: float) -> None:
    assert by - 1e-6 <= stepped(by) < by + STEP
    assert stepped(stepped(by)) == stepped(by)


@pytest.mark.parametrize(("by", "step"), [(1.0, 1.03), (1.03, 1.03), (1.04, 1.15), (1.15, 1.15), (1.16, 1.27)])
def test_what_is_taken_before_any_report_is_a_step(by: float, step: float) -> None:
    assert stepped(by) == step
