"""Expressions and functions over text take time in proportion to it."""

import ast
import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import cast
from uuid import UUID

import pytest

import throughline
from house.growth import ENDS, SHAPES, Shape, Steep, own_shapes, steep
from house.tree import name_of, python_files, syntax_tree
from throughline.agents.read_file import show
from throughline.cli.printable import one_line, printable
from throughline.context.compaction.strategy import distinct_words
from throughline.context.find_citations import contains_quotation, find_citations, fold_text
from throughline.context.summaries.check_summary import NotWorthIt, SummaryRejected, check_summary
from throughline.context.summaries.find_facts import facts_of
from throughline.context.summaries.keep_lines import taken_facts
from throughline.context.summaries.summary_prompt import CONVERSATION_TAG, EXISTING_TAG, TextRequest, render_transcript
from throughline.context.view.placeholder_texts import delimited, escaped, undelimited
from throughline.context.view.shrink_message import cut_to_bytes, truncate_middle
from throughline.db.search.analyzer import Analyzer, shortened
from throughline.db.search.repository import snippet_of
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.message import Message, Role, Source, ToolCall, clean_text
from throughline.domain.prompt import Prompt, PromptMessage, ToolSpec
from throughline.domain.summary import FactKind, KeptFact
from throughline.http.body import parse_json
from throughline.llm.classify_error import known_answers
from throughline.llm.counters import CharsCounter, TiktokenCounter
from throughline.llm.offline import summarise
from throughline.llm.offline_answers import reply_to
from throughline.slack.answers.markdown import settled, to_slack
from throughline.slack.read_event import readable

FACTORY_ARGUMENT = "tag"
"""What a function that makes an expression of a word is given; none of them looks at it."""

CONTAINERS = (tuple, list, set, frozenset)


def expressions() -> dict[str, re.Pattern[str]]:
    """Return the expressions of all modules of `throughline` under the names by which they are found, each once."""
    in_a_file = _inside("throughline.llm.classify_error.known_answers()", known_answers())
    names: dict[re.Pattern[str], str] = {pattern: path for path, pattern in in_a_file}
    for module in _modules():
        for name, value in vars(importlib.import_module(module)).items():
            for path, pattern in _inside(f"{module}.{name}", value):
                names.setdefault(pattern, path)
    return {path: pattern for pattern, path in names.items()}


def _modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(throughline.__path__, "throughline."):
        if not module.name.endswith("__main__"):
            yield module.name


def _inside(path: str, value: object) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the expressions in a value: itself, in containers and fields, or what a factory makes."""
    if isinstance(value, re.Pattern):
        yield path, value
    elif _makes_expression(value):
        factory = cast("Callable[..., re.Pattern[str]]", value)
        yield f"{path}()", factory(*([FACTORY_ARGUMENT] * len(inspect.signature(factory).parameters)))
    else:
        for name, inner in _parts(value):
            yield from _inside(f"{path}{name}", inner)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", inner) for key, inner in value.items())
    elif isinstance(value, CONTAINERS):
        yield from ((f"[{index}]", inner) for index, inner in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))


def _makes_expression(value: object) -> bool:
    """Whether it is one of our functions that keep the expressions they make."""
    module = getattr(value, "__module__", None) or ""
    makes = getattr(value, "__annotations__", {}).get("return")
    return hasattr(value, "cache_info") and module.startswith("throughline.") and makes == re.Pattern[str]


JUDGED_BY_SENTENCE = "throughline.context.summaries.find_facts."
"""These are only ever given 300 characters; test_linear_expressions.py judges the function that cuts them off."""

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


ANALYZER = Analyzer("english")
CHARS = CharsCounter().count


def _check(text: str, *, record: str, existing: str = "") -> None:
    asked = "\n".join((delimited(CONVERSATION_TAG, record), delimited(EXISTING_TAG, existing)))
    prompt = Prompt("", (PromptMessage(Role.USER, asked),))
    with suppress(NotWorthIt, SummaryRejected):
        check_summary(text, TextRequest(prompt, 500, 9999, (1, 9)), CHARS)


OLD_FACT = KeptFact(FactKind.VALUE, "wibble is wobble", 0, subject="wibble wobble")
TOOLS = tuple(ToolSpec(name, "", {"required": ["x"]}) for name in ("current_time", "calculator"))
FUNCTIONS: dict[str, Callable[[str], object]] = {
    "count_tokens": TiktokenCounter().count,
    "clean_text": clean_text,
    "escaped": lambda text: escaped("conversation_record", text),
    "undelimited": lambda text: undelimited("conversation_record", text),
    "facts_of a user": lambda text: facts_of([_message(Role.USER, text)], (), (OLD_FACT,)),
    "facts_of a tool": lambda text: facts_of([_message(Role.TOOL, text)], (), ()),
    "facts_of a call": lambda text: facts_of([_message(Role.ASSISTANT, text)], (), ()),
    "taken_facts": lambda text: taken_facts(f"value | a | {text} | #1\n{text}", [_message(Role.USER, text)]),
    "render_transcript": lambda text: render_transcript([_message(Role.USER, text), _message(Role.ASSISTANT, text)]),
    "check_summary": lambda text: _check(text, record=text, existing=text),
    "check_summary of a record": lambda text: _check(text, record=f"[#1 user] {text}"),
    "find_citations": lambda text: find_citations(text, most=len(text)),
    "contains_quotation": lambda text: contains_quotation(fold_text(text), f"{text[:1000]}…a"),
    "truncate_middle": lambda text: truncate_middle(text, 500, CHARS),
    "cut_to_bytes": lambda text: cut_to_bytes(text, 2000),
    "distinct_words": lambda text: distinct_words([text]),
    "Analyzer.terms": lambda text: deque(ANALYZER.terms(shortened(text)), maxlen=0),
    "snippet_of": lambda text: snippet_of(ANALYZER, text, {"a", "b", "wibble"}),
    "reply_to": lambda text: reply_to(Prompt("", (_said(text), _said(text))), TOOLS),
    "summarise": lambda text: summarise(text, f"[#1 user] {text}", max_tokens=500, count=CHARS),
    "to_slack": to_slack,
    "settled": settled,
    "readable": lambda text: readable(text, bot_user_id="U1"),
    "printable": printable,
    "one_line": lambda text: one_line(text, limit=200),
    "show": show,
    "parse_json": lambda text: parse_json(json.dumps([text]).encode()),
}
FACTS_STRIDE = 5
"""One shape in so many is enough for facts: their expressions are judged by themselves elsewhere."""

LINEAR_FUNCTIONS_SHORT_STRIDE = 12
"""In every run one in so many of the shapes is tried."""

LISTS = (Shape("|a|\n|-|\n", "|a|\n"), Shape("|a", "|"), Shape("", "[x](http://a "), Shape("", "wibble wobble. "))
QUOTED = (Shape("", '"a [#1]'), Shape("", "'a' [#1]"), Shape('"', "'! "), Shape("", "[#1-#2 x"), Shape("", "[#1] "))


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_over_few_texts_take_time_in_proportion_to_them(name: str) -> None:
    stride = LINEAR_FUNCTIONS_SHORT_STRIDE * _stride(name)

    assert list(steep([(name, FUNCTIONS[name])], (*SHAPES[::stride], *LISTS, *QUOTED), ends=ENDS[:1])) == []


@pytest.mark.proof
@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_over_text_take_time_in_proportion_to_it(name: str) -> None:
    assert list(steep([(name, FUNCTIONS[name])], (*SHAPES[:: _stride(name)], *LISTS, *QUOTED), ends=ENDS[:1])) == []


def _stride(name: str) -> int:
    return FACTS_STRIDE if name.startswith("facts_of") else 1


def _said(text: str) -> PromptMessage:
    return PromptMessage(Role.USER, text)


def _message(role: Role, text: str) -> Message:
    calls = (ToolCall("call_1", "grep", text),) if role is Role.ASSISTANT else ()
    return Message(
        id=MessageId(UUID(int=1)),
        session_id=SessionId(UUID(int=2)),
        position=1,
        role=role,
        content=text,
        source=Source.API,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        tool_calls=calls,
    )
