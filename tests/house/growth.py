"""Texts that make a careless expression or function slow, and whether a cost grows with them or with their square."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from re import _parser  # type: ignore[attr-defined]  # the one reader of an expression there is
from typing import Any, NamedTuple, TypeAlias

from fakes.growth import processor_seconds

UNITS = (
    *" \t\n\"'0.-[(<`#*_|~:;,/\\@=+$&!?%^>)]{}a",
    *"A9x\r\u00a0\u200b\u4e2d\u3042\ud55c\u0301\u2026\u3002\u00b4\uff3b",
    *("< ", "0 ", "1.", "- ", "a ", "a.", "A.", "a/", "a-", "a_", "a=", "a,", "a:", "aA", "a1", "\n ", " \n", "\n\n"),
    *("\n- ", "\n|", "| ", "|-", "![", "](", "[a](", "](<", "`a", "``", "``\n", "e\u0301\u0301", "a'", "'a", '"a'),
    *(' "', '\\"', "\\", 'x="', "</", "<a", "<a ", "<!", "<@A", "(1", "1)", "1+", "+1 ", "1 2 ", "1, ", "1-1-", "01:"),
    *("QUJD", "ab12CD/+", "a@a.", "www.a.", "http://a", "://", "$ a", "\x1b[", "\x1b]", "\x1bP", "[#1 ", "[#1-#1]"),
    *("Args:\n", "\n    ", "\n\t", "you never ", "please always ", "\u4e2d\u6587", "\u0435\u0432\u0430 "),
    *("Error: ", "error ", '{"a":', "[[", "}]"),
)
ENDS = ("\x00", "\n!")
"""What spoils a text at its end, so that a reader of it all has to go back."""

MAX_EXAMPLES = 60


class Shape(NamedTuple):
    """A text in the making: `head` once, then `unit` over and over."""

    head: str
    unit: str

    def text(self, end: str, characters: int) -> str:
        """Return about so many characters, and the end."""
        return self.head + self.unit * (characters // len(self.unit) + 1) + end


SHAPES = tuple(Shape("", unit) for unit in UNITS)


def own_shapes(pattern: re.Pattern[str]) -> tuple[Shape, ...]:
    """Return what an expression itself repeats, alone and behind what it begins with."""
    tree = _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    found = dict.fromkeys(shape for shape in _shapes(tree, "") if shape.unit and shape not in SHAPES)
    return tuple(found)[:MAX_EXAMPLES]


Part: TypeAlias = Any  # what the parser makes: (operator, argument), the argument's shape is the operator's
REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


def _shapes(tree: Sequence[Part], before: str) -> Iterator[Shape]:
    """Yield the whole as a unit, then each part that repeats, where `before` is an example of what stands before."""
    yield Shape("", before + _example(tree))
    for item in tree:
        operator, argument = item
        if str(operator) in REPEATS:
            yield Shape(before, _example(argument[2]))
            yield from (Shape(before, unit) for unit in _members(argument[2]))
            yield Shape("", before + _example(argument[2]))
        for inner in _subtrees(argument):
            yield from _shapes(inner, before)
        before += _of_item(item)


def _members(tree: Sequence[Part]) -> Iterator[str]:
    """Yield a text for each member of a class that repeats: two classes side by side may share any of theirs."""
    if len(tree) == 1 and str(tree[0][0]) == "IN":
        yield from (_first_member([member]) for member in tree[0][1])


def _subtrees(argument: Part) -> Iterator[Sequence[Part]]:
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for inner in argument:
            yield from _subtrees(inner)


def _example(tree: Sequence[Part]) -> str:
    """Return a short text it takes: the first branch, the shortest repetition that is not empty."""
    return "".join(_of_item(item) for item in tree)


def _of_item(item: Part) -> str:
    operator, argument = str(item[0]), item[1]
    write = _WRITERS.get(operator)
    return write(argument) if write else ""


def _first_member(members: Sequence[Part]) -> str:
    operator, argument = str(members[0][0]), members[0][1]
    if operator == "CATEGORY":
        return {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "w"}.get(str(argument), "-")
    if operator == "RANGE":
        return chr(argument[0])
    return chr(argument) if operator == "LITERAL" else "b"


def _repetition(argument: Part) -> str:
    least: int = argument[0]
    return _example(argument[2]) * max(least, 1)


_WRITERS: dict[str, Callable[[Part], str]] = {
    "LITERAL": chr,
    "NOT_LITERAL": lambda _: "b",
    "ANY": lambda _: "b",
    "IN": _first_member,
    "SUBPATTERN": lambda argument: _example(argument[-1]),
    "ATOMIC_GROUP": _example,
    "BRANCH": lambda argument: _example(argument[1][0]),
    **dict.fromkeys(REPEATS, _repetition),
}


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
