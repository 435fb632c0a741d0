import json
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

import pytest

from house.growth import steep
from house.hostile_texts import ENDS, SHAPES, Shape
from throughline.agents.read_file import show
from throughline.cli.printable import one_line, printable
from throughline.context.compaction.strategy import distinct_words
from throughline.context.find_citations import contains_quotation, find_citations, fold_text
from throughline.context.summaries.check_summary import Sources, check_summary
from throughline.context.summaries.find_facts import facts_of
from throughline.context.summaries.keep_lines import taken_facts
from throughline.context.summaries.summary_prompt import render_transcript
from throughline.context.view.placeholder_texts import escaped, undelimited
from throughline.context.view.shrink_message import cut_to_bytes, truncate_middle
from throughline.db.search.analyzer import Analyzer, shortened
from throughline.db.search.repository import snippet_of
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.message import Message, Role, Source, ToolCall, clean_text
from throughline.domain.prompt import Prompt, PromptMessage, ToolSpec
from throughline.domain.summary import FactKind, KeptFact
from throughline.http.body import parse_json
from throughline.llm.counters import CharsCounter, TiktokenCounter
from throughline.llm.offline import summarise
from throughline.llm.offline_answers import reply_to
from throughline.slack.markdown.convert import settled, to_slack
from throughline.slack.read_event import readable

ANALYZER = Analyzer("english")
CHARS = CharsCounter().count
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
    "check_summary": lambda text: check_summary(
        text, replaced_tokens=9999, max_tokens=500, count=CHARS, sources=Sources(text, text, (1, 9))
    ),
    "check_summary of a record": lambda text: check_summary(
        text, replaced_tokens=9999, max_tokens=500, count=CHARS, sources=Sources(f"[#1 user] {text}", "", (1, 9))
    ),
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

SHORT_STRIDE = 12
"""In every run one in so many of the shapes is tried."""

LISTS = (Shape("|a|\n|-|\n", "|a|\n"), Shape("|a", "|"), Shape("", "[x](http://a "), Shape("", "wibble wobble. "))
QUOTED = (Shape("", '"a [#1]'), Shape("", "'a' [#1]"), Shape('"', "'! "), Shape("", "[#1-#2 x"), Shape("", "[#1] "))


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_over_few_texts_take_time_in_proportion_to_them(name: str) -> None:
    stride = SHORT_STRIDE * _stride(name)

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
