"""The profile of a turn charges what it samples to the right layer, and says so."""

import asyncio
import json
import sys

import pydantic
import pytest
import structlog

from benchmarks.processes import ROOT
from benchmarks.profile_sampler import (
    LOOP,
    MODEL,
    NEUTRAL,
    OTHER,
    OUR_DATABASE,
    OUR_TURN,
    Sampled,
    Sampler,
    charged,
    layer_of,
)
from benchmarks.profile_turn import Profile, render, render_functions, shortened
from throughline.turn import submit

PROFILE = Profile(
    (
        Sampled(OUR_TURN, f"{ROOT}/app/throughline/turn/submit.py", 12, "Submit.run", 3),
        Sampled("asyncpg", "/elsewhere/asyncpg/pool.py", 7, "Pool.acquire", 6),
        Sampled(OUR_TURN, json.__file__, 183, "dumps", 1),
    ),
    turns=20,
    cpu_seconds=0.2,
)


@pytest.mark.parametrize(
    ("file", "layer"),
    [
        (submit.__file__, OUR_TURN),
        (f"{ROOT}/app/throughline/db/runs/claim.py", OUR_DATABASE),
        (f"{ROOT}/benchmarks/instant_model.py", OTHER),
        (pydantic.__file__, MODEL),
        (structlog.__file__, "structlog"),
        (pytest.__file__, OTHER),
        (json.__file__, NEUTRAL),
        ("<string>", NEUTRAL),
    ],
)
def test_a_file_belongs_to_a_layer(file: str, layer: str) -> None:
    assert layer_of(file) == layer


def test_the_standard_library_is_charged_to_who_called_it() -> None:
    assert charged([json.__file__, "<string>", submit.__file__, pydantic.__file__]) == OUR_TURN


def test_a_stack_of_the_standard_library_alone_is_the_loop() -> None:
    assert charged([asyncio.__file__, "<frozen runpy>"]) == LOOP


def test_functions_that_run_more_often_come_first() -> None:
    sampler = Sampler()
    frame = sys._getframe()  # noqa: SLF001  # a signal's handler is given one
    for taken in (frame.f_back, frame, frame):
        sampler.take(0, taken)

    first, second = sampler.result()

    assert (first.name, first.layer, first.count) == (frame.f_code.co_name, OTHER, 2)
    assert second.count == 1


def test_layers_and_functions_are_printed_with_the_largest_first() -> None:
    printed = render(PROFILE).splitlines()

    assert printed[0] == "20 turns, 10.0 ms of CPU each, 10 samples"
    assert printed[4:] == ["| asyncpg | 60.0% | 6.00 |", "| our turn and engine | 40.0% | 4.00 |"]
    assert render_functions(PROFILE, 2).splitlines()[3:] == [
        "| `Pool.acquire` /elsewhere/asyncpg/pool.py:7 | asyncpg | 60.0% | 6.00 |",
        "| `Submit.run` throughline/turn/submit.py:12 | our turn and engine | 30.0% | 3.00 |",
    ]


def test_a_file_is_named_from_its_package_on() -> None:
    assert shortened(structlog.__file__) == "structlog/__init__.py"
    assert shortened("/nowhere/at/all.py") == "/nowhere/at/all.py"
