import ast
import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from house.expressions import expressions
from house.growth import Steep, steep
from house.hostile_texts import ENDS, SHAPES, own_shapes
from house.tree import name_of, python_files, syntax_tree

JUDGED_BY_SENTENCE = "throughline.context.summaries.find_facts."
"""These are only ever given 300 characters; test_linear_functions.py judges the function that cuts them off."""

BY_TEXT = {"search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}
PARTS = 8
SHORT_STRIDE = 8
"""In every run one in so many of the shapes is tried that all expressions share."""


@cache
def _judged() -> dict[str, re.Pattern[str]]:
    return {name: pattern for name, pattern in expressions().items() if not name.startswith(JUDGED_BY_SENTENCE)}


@pytest.mark.slow
def test_every_expression_takes_time_in_proportion_to_what_it_repeats() -> None:
    assert len(_judged()) > 150
    assert [found for name, pattern in _judged().items() for found in _steep_in_short_search(name, pattern)] == []


@pytest.mark.proof
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_expression_takes_time_in_proportion_to_its_text(part: int) -> None:
    names = sorted(_judged())[part::PARTS]

    assert [found for name in names for found in _steep_in_full_search(name, _judged()[name])] == []


def test_expressions_are_compiled_where_the_check_finds_them() -> None:
    """`re.sub("…", …)` hides an expression from it."""
    hidden = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files("app")
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.Call) and _is_of_re(node.func, BY_TEXT)
    ]

    assert hidden == []


def _is_of_re(function: ast.expr, names: set[str]) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in names
    )


def _steep_in_short_search(name: str, pattern: re.Pattern[str]) -> Iterator[Steep]:
    """Try what the expression itself repeats, and few other shapes: nearly all mistakes show there."""
    return steep([next(_uses(name, pattern))], (*SHAPES[::SHORT_STRIDE], *own_shapes(pattern)), ends=ENDS[:1])


def _steep_in_full_search(name: str, pattern: re.Pattern[str]) -> Iterator[Steep]:
    return steep(_uses(name, pattern), (*SHAPES, *own_shapes(pattern)))


def _uses(name: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, Callable[[str], object]]]:
    yield f"{name}.finditer", lambda text: deque(pattern.finditer(text), maxlen=0)
    yield f"{name}.match", pattern.match
    yield f"{name}.fullmatch", pattern.fullmatch
