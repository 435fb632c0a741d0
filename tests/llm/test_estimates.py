"""What we take a prompt for, and what the provider counts, once three turns have taught us how it counts."""

import random
from collections.abc import Callable

import pytest

from fakes.provider_double.counting import COUNTINGS
from fakes.provider_double.estimates import play
from fakes.provider_double.texts import TEXTS

TURNS = 12


@pytest.mark.parametrize("write", list(TEXTS.values()), ids=list(TEXTS))
@pytest.mark.parametrize("way", sorted(COUNTINGS))
def test_after_three_turns_the_estimate_is_within_five_percent(way: str, write: Callable[[random.Random], str]) -> None:
    errors = [estimate.error for estimate in play(write, way, TURNS) if estimate.turn > 3]

    assert len(errors) == TURNS - 3
    assert max(abs(error) for error in errors) <= 0.05


@pytest.mark.parametrize("write", list(TEXTS.values()), ids=list(TEXTS))
@pytest.mark.parametrize("way", sorted(COUNTINGS))
def test_one_turn_is_enough_not_to_be_far_below_the_providers_count(
    way: str, write: Callable[[random.Random], str]
) -> None:
    assert all(estimate.error >= -0.05 for estimate in play(write, way, TURNS) if estimate.turn > 1)
