"""What a replay says its strategies cost: repeated tokens at a tenth, summaries in full."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.replay import main
from benchmarks.replay_table import (
    STRATEGIES,
    WITHOUT_SUMMARIES,
    failures_of,
    growing_price,
    price,
    render_costs,
    repeated_tokens,
)
from replay.test_replay_report import GOOD


def prompt(tokens: int, *, shared: int = 0, previous: int = 0, verdict: str = "answered") -> dict[str, Any]:
    return {"prompt_tokens": tokens, "shared_bytes": shared, "previous_bytes": previous, "verdict": verdict}


def test_what_repeats_is_the_part_of_the_prompt_before_that_stands_in_both() -> None:
    prompts = [prompt(100), prompt(150, shared=400, previous=400), prompt(80, shared=300, previous=600)]

    assert repeated_tokens(prompts) == 100 + 75
    assert repeated_tokens([prompt(100), prompt(999, shared=400, previous=400, verdict="over_window")]) == 0
    assert repeated_tokens([]) == repeated_tokens([prompt(100)]) == 0


def test_a_repeated_token_costs_a_tenth() -> None:
    assert price(100, 50) == 55
    assert growing_price([100, 150, 200]) == 100 + (10 + 50) + (15 + 50)
    assert growing_price([]) == 0


def test_a_cell_costs_its_prompts_and_what_summarisers_read_and_wrote() -> None:
    assert GOOD.prompts_price == 4500
    assert GOOD.whole_price == 4500 + 1000 + 300


def test_the_table_of_costs_names_each_strategy() -> None:
    lines = render_costs([GOOD, replace(GOOD, strategy="truncation")]).splitlines()

    assert len({len(line) for line in lines[:4]}) == 1
    assert "shipped" in lines[2]
    assert "50%" in lines[2]
    assert "truncation" in lines[3]


def test_only_a_strategy_without_summaries_may_do_without_a_compaction() -> None:
    quiet = replace(GOOD, compactions=0)

    for strategy in STRATEGIES:
        wrong = failures_of(replace(quiet, strategy=strategy))
        assert (wrong == []) == (strategy in WITHOUT_SUMMARIES)
        assert failures_of(replace(quiet, strategy=strategy, stages=())) != []


def test_an_unknown_strategy_is_refused_in_words() -> None:
    with pytest.raises(SystemExit, match=r"There is no strategy guesswork: choose from shipped, tiered, rolling, "):
        main(["--strategies", "guesswork"])
