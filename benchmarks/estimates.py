"""Prints how far our estimate of a prompt is off the provider's count, turn by turn, while we learn how it counts.

Counts are those of the provider double, in its three ways; texts are of six kinds, and all of them in turn ("mixed").
Run from the project's folder: `.venv/bin/python benchmarks/estimates.py`.
"""

import random
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.provider_double.counting import COUNTINGS
from fakes.provider_double.estimates import play
from fakes.provider_double.texts import TEXTS

TURNS = 12
LEARNING = 3
SEEDS = 5


def main() -> None:
    """Print one line for each kind of text and way of counting."""
    print("error of the estimate against the provider's count, in percent (largest distance of five conversations)")
    print(
        f"{'text':9} {'counted as':10} {'turn 1':>8} {'turn 2':>8} {'turn 3':>8} {'later: lowest':>14} {'highest':>8}"
    )
    for kind, write in {**TEXTS, "mixed": mixed()}.items():
        for way in sorted(COUNTINGS):
            print(line(kind, way, write))


def mixed() -> Callable[[random.Random], str]:
    """Return a writer that changes from kind to kind."""
    writers = cycle(TEXTS.values())

    def write(source: random.Random) -> str:
        return next(writers)(source)

    return write


def line(kind: str, way: str, write: Callable[[random.Random], str]) -> str:
    """Return the line of one conversation."""
    played = [list(play(write, way, TURNS, seed)) for seed in range(SEEDS)]
    first = [max((turns[index].error for turns in played), key=abs) for index in range(LEARNING)]
    later = [estimate.error for turns in played for estimate in turns[LEARNING:]]
    shown = "".join(f" {100 * error:+7.1f}%" for error in first)
    return f"{kind:9} {way:10}{shown} {100 * min(later):+13.1f}% {100 * max(later):+7.1f}%"


if __name__ == "__main__":
    main()
