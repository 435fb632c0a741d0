"""Whether a cost grows with its input or with the square of it: told by two sizes, never by a limit in seconds."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fakes.growth import processor_seconds
from house.hostile_texts import ENDS, Shape

CHARACTERS = 4000
"""The smaller of the two sizes; halved, for a first look, as long as the cost is still worth judging."""

SHORTEST = 1000
"""It is not halved below this: an expression with a bounded repeat, of 400 at most, is quadratic up to its bound."""

FACTOR = 4
"""So many times longer is the larger: 4 times the time if the cost is linear, 16 times if it is quadratic."""

TOO_MUCH = 9.0
"""Growth from which a cost is not called linear."""

WORTH_JUDGING_SECONDS = 0.003
"""Below this at the smaller size a cost is not quadratic: that would be millions of steps."""

CLEARLY_LINEAR = 6.0
"""Growth below which no more is measured: a quadratic cost is far from it, also on a busy machine."""

ROUNDS = 5


class Steep(NamedTuple):
    """A text on which a task's cost grows too fast."""

    name: str
    shape: Shape
    end: str


def steep(
    tasks: Iterable[tuple[str, Callable[[str], object]]],
    shapes: Iterable[Shape],
    *,
    characters: int = CHARACTERS,
    ends: Iterable[str] = ENDS,
) -> Iterator[Steep]:
    """Yield the tasks and texts for which the cost grows faster than the text, once for each task.

    A cost is the processor time of this thread. Other programs can only add to it, so the least of several
    measurements counts, at the small and at the large size alike.
    """
    shapes, ends = tuple(shapes), tuple(ends)
    for name, run in tasks:
        texts = ((shape, end) for shape in shapes for end in ends)
        found = next(((shape, end) for shape, end in texts if _is_steep(run, shape, end, characters)), None)
        if found is not None:
            yield Steep(name, *found)


def _is_steep(run: Callable[[str], object], shape: Shape, end: str, characters: int) -> bool:
    """Whether it is at the shortest text worth judging, where it takes least to prove, or else at the full one."""
    if processor_seconds(run, shape.text(end, characters)) < WORTH_JUDGING_SECONDS:
        return False
    shorter = characters
    while shorter // 2 >= SHORTEST and processor_seconds(run, shape.text(end, shorter // 2)) >= WORTH_JUDGING_SECONDS:
        shorter //= 2
    return any(_grows_too_much(run, shape, end, size) for size in sorted({shorter, characters}))


def _grows_too_much(run: Callable[[str], object], shape: Shape, end: str, characters: int) -> bool:
    small_text, large_text = shape.text(end, characters), shape.text(end, characters * FACTOR)
    small = large = math.inf
    for _ in range(ROUNDS):
        small = min(small, *(processor_seconds(run, small_text) for _ in range(3)))
        large = min(large, processor_seconds(run, large_text))
        if large < small * CLEARLY_LINEAR:
            return False
    return large > small * TOO_MUCH
