"""What is rendered is what its shape says: the same keys in the same order, the same types, nothing lost in reading."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.wire_shapes import assert_agreement, session_out
from throughline.context.explain import ContextReport, NextAction, SummariserReport, SummaryReport, report_json
from throughline.context.forms import Form
from throughline.context.preview import Action
from throughline.context.triggers import Cause
from throughline.db.statements.rows import content_data, content_from
from throughline.domain.memory import FoundBy, Memory
from throughline.domain.message import Content, ImageBlock, Message, Role, Source, TextBlock, ToolCall
from throughline.domain.page import Page
from throughline.domain.prompt import Usage
from throughline.domain.recall import Hit
from throughline.domain.run import Run, RunError, RunInput, RunStatus
from throughline.domain.session import Session
from throughline.domain.summary import SummaryState, SummaryVersion
from throughline.execution.breaker import BreakerState
from throughline.wire.context import ContextOut, PreviewedMessage, PreviewOut, SummariserOut
from throughline.wire.memories import MemoryList, MemoryOut, memory_json
from throughline.wire.messages import HitOut, MessageOut, MessagePage, hit_json, message_json
from throughline.wire.runs import RunOut, run_json
from throughline.wire.sessions import SessionOut, SummaryVersionOut, session_json, summary_version_json
from throughline.wire.shape import Shape, page_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COUNT = st.integers(0, 2**53)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  # bounds are naive
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(  # Any: JSON of any depth
    st.none() | st.booleans() | COUNT | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
METADATA = st.dictionaries(TEXT, JSON, max_size=3)
CALLS = st.lists(st.builds(ToolCall, TEXT, TEXT, TEXT), max_size=3).map(tuple)
CONTENTS: st.SearchStrategy[Content] = TEXT | st.lists(
    st.builds(TextBlock, TEXT) | st.builds(ImageBlock, TEXT, TEXT), max_size=3
).map(tuple)
OPTIONAL = st.none() | TEXT
UUIDS = st.uuids()

MESSAGES = st.builds(
    Message,
    id=UUIDS,
    session_id=UUIDS,
    position=COUNT,
    role=st.sampled_from(Role),
    content=CONTENTS,
    source=st.sampled_from(Source),
    created_at=TIMES,
    tool_calls=CALLS,
    tool_call_id=OPTIONAL,
    name=OPTIONAL,
    run_id=st.none() | UUIDS,
    author=OPTIONAL,
    token_count=COUNT,
    metadata=METADATA,
    pinned=st.booleans(),
)
RUNS = st.builds(
    Run,
    id=UUIDS,
    session_id=UUIDS,
    owner_id=UUIDS,
    agent=TEXT,
    seq=COUNT,
    status=st.sampled_from(RunStatus),
    input=st.just(RunInput("hi")),
    source=st.sampled_from(Source),
    created_at=TIMES,
    author=OPTIONAL,
    actor=OPTIONAL,
    attempt=COUNT,
    cancel_requested=st.booleans(),
    usage=st.builds(Usage, input_tokens=st.none() | COUNT, output_tokens=st.none() | COUNT),
    error=st.none() | st.builds(RunError, TEXT, TEXT),
    message_id=st.none() | UUIDS,
    started_at=st.none() | TIMES,
    finished_at=st.none() | TIMES,
)
SESSIONS = st.builds(
    Session,
    id=UUIDS,
    owner_id=UUIDS,
    agent=TEXT,
    title=TEXT,
    source=st.sampled_from(Source),
    created_at=TIMES,
    updated_at=TIMES,
    summary_through_position=COUNT,
    message_count=COUNT,
    metadata=METADATA,
    archived=st.booleans(),
)
VERSIONS = st.builds(
    SummaryVersion,
    id=UUIDS,
    session_id=UUIDS,
    version=st.none() | COUNT,
    state=st.sampled_from(SummaryState),
    text=TEXT,
    token_count=COUNT,
    through_id=st.none() | UUIDS,
    through_position=COUNT,
    model=TEXT,
    created_at=TIMES,
    stretch_ids=st.lists(UUIDS, max_size=3).map(tuple),
)
MEMORIES = st.builds(
    Memory,
    id=UUIDS,
    user_id=UUIDS,
    text=TEXT,
    metadata=METADATA,
    created_at=TIMES,
    updated_at=TIMES,
    score=st.none() | NUMBERS,
)
HITS = st.builds(
    Hit,
    message=MESSAGES,
    score=NUMBERS,
    snippet=TEXT,
    highlights=st.lists(st.tuples(COUNT, COUNT), max_size=3).map(tuple),
)
SUMMARIES = st.builds(
    SummaryReport,
    messages_summarized=COUNT,
    token_count=COUNT,
    created_at=TIMES.map(datetime.isoformat),
    through_id=st.none() | UUIDS.map(str),
    through_position=COUNT,
    model=TEXT,
)
REPORTS = st.builds(
    ContextReport,
    last_summary_at=st.none() | TIMES.map(datetime.isoformat),
    summary=st.none() | SUMMARIES,
    prepared=st.none() | SUMMARIES,
    summariser=st.none() | st.builds(SummariserReport, model=TEXT, state=st.sampled_from(BreakerState).map(str)),
    next_action=st.sampled_from(NextAction),
    usage_percent=NUMBERS,
    messages_percent=st.none() | NUMBERS,
    tokens_percent=st.none() | NUMBERS,
    agent=TEXT,
    model=TEXT,
)


@given(MESSAGES)
def test_a_message(message: Message) -> None:
    assert_agreement(message_json(message), MessageOut)


@given(st.lists(MESSAGES, max_size=2).map(tuple), OPTIONAL)
def test_a_page(messages: tuple[Message, ...], cursor: str | None) -> None:
    assert_agreement(page_json(Page(messages, cursor), message_json), MessagePage)


@given(RUNS)
def test_a_run(run: Run) -> None:
    assert_agreement(run_json(run), RunOut)


@given(CONTENTS)
def test_a_content_is_read_as_it_was_stored(content: Content) -> None:
    assert content_from(content_data(content)) == content


@given(SESSIONS)
def test_a_session(session: Session) -> None:
    assert_agreement(session_json(session), SessionOut)


@given(VERSIONS)
def test_a_version_of_a_summary(version: SummaryVersion) -> None:
    assert_agreement(summary_version_json(version), SummaryVersionOut)


@given(MEMORIES)
def test_a_memory(memory: Memory) -> None:
    assert_agreement(memory_json(memory), MemoryOut)


@given(HITS)
def test_a_found_message(hit: Hit) -> None:
    assert_agreement(hit_json(hit), HitOut)


@given(REPORTS)
def test_a_report_on_the_context(report: ContextReport) -> None:
    assert_agreement(report_json(report), ContextOut)


def words_of(shape: type[Shape], field: str) -> set[str]:
    described = shape.model_json_schema()["properties"][field]
    found: list[str] = described.get("enum") or described["anyOf"][0]["enum"]
    return set(found)


@pytest.mark.parametrize(
    ("shape", "field", "words"),
    [
        (ContextOut, "next_action", set(NextAction)),
        (SummariserOut, "state", set(BreakerState)),
        (PreviewOut, "action", set(Action)),
        (PreviewOut, "cause", set(Cause)),
        (PreviewedMessage, "form", set(Form)),
        (MemoryList, "by", set(get_args(FoundBy))),
    ],
)
def test_the_words_a_field_is_documented_with_are_those_there_are(
    shape: type[Shape], field: str, words: set[str]
) -> None:
    assert words_of(shape, field) == {str(word) for word in words}


def test_times_are_written_with_their_offset_in_digits() -> None:
    assert session_out().model_dump(mode="json")["created_at"] == "2026-05-04T03:02:01+00:00"
