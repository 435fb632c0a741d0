"""What the shapes add to the values they are rendered from, and how closed sets and times are written."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.scripted_model import Call, Fail, Say, ScriptedModel
from fakes.stage import Stage, open_stage, with_context
from fakes.wire_shapes import session_out
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.explain_context import NextAction
from throughline.context.fit_prompt import MessageVariant
from throughline.context.preview import Action
from throughline.db.database import Database
from throughline.db.statements.rows import content_data, content_from
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.errors import AnswerIncomplete, ModelQuotaExhausted
from throughline.domain.events import EventType
from throughline.domain.message import Content, ImageBlock, Message, Role, Source, TextBlock, ToolCall
from throughline.domain.recall import FoundBy, Hit, SearchResult
from throughline.domain.run import Run
from throughline.execution.breaker import BreakerState
from throughline.wire.context import ContextOut, PreviewedMessage, PreviewOut, SummariserOut
from throughline.wire.events import EVENTS, event_json
from throughline.wire.json_shape import Shape
from throughline.wire.messages import MOST_INCOMPLETE, MessageOut, SearchOut, search_json
from throughline.wire.sessions import MemoryList

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CONTENTS: st.SearchStrategy[Content] = TEXT | st.lists(
    st.builds(TextBlock, TEXT) | st.builds(ImageBlock, TEXT, TEXT), max_size=3
).map(tuple)
MESSAGE = Message(
    id=MessageId(UUID(int=1)),
    session_id=SessionId(UUID(int=2)),
    position=7,
    role=Role.ASSISTANT,
    content="Look here.",
    source=Source.API,
    created_at=datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC),
)


@given(CONTENTS)
def test_a_content_is_read_as_it_was_stored(content: Content) -> None:
    assert content_from(content_data(content)) == content


def test_content_of_several_blocks_is_a_list_with_their_types() -> None:
    message = replace(MESSAGE, content=(TextBlock("See:"), ImageBlock("https://example.org/a.png")))

    assert MessageOut.render(message)["content"] == [
        {"type": "text", "text": "See:"},
        {"type": "image", "url": "https://example.org/a.png", "detail": "auto"},
    ]


def test_a_message_reads_back_as_it_was_rendered() -> None:
    rendered = MessageOut.render(replace(MESSAGE, tool_calls=(ToolCall("c1", "clock", "{"),), metadata={"a": [1]}))

    assert MessageOut.model_validate(rendered).model_dump(mode="json") == rendered
    assert rendered["tool_calls"] == [{"id": "c1", "name": "clock", "arguments": "{"}]
    assert rendered["created_at"] == "2026-05-04T03:02:01+00:00"


def test_a_found_message_links_to_its_place_in_the_history() -> None:
    told = SearchOut.model_validate(search_json(SearchResult((Hit(MESSAGE, 1.5, "Look here.", ((0, 4),)),))))

    assert told.is_complete
    assert told.data[0].link == f"/v1/sessions/{MESSAGE.session_id}/messages?after=6&limit=1"
    assert told.data[0].highlights == [(0, 4)]


def test_an_incomplete_search_names_some_sessions_and_counts_all() -> None:
    sessions = tuple(SessionId(UUID(int=number)) for number in range(MOST_INCOMPLETE + 5))

    told = SearchOut.model_validate(search_json(SearchResult((), sessions)))

    assert not told.is_complete
    assert told.incomplete_sessions == [str(session_id) for session_id in sessions[:MOST_INCOMPLETE]]
    assert told.incomplete_session_count == MOST_INCOMPLETE + 5


def test_every_event_has_a_shape() -> None:
    assert EVENTS.keys() == set(EventType)


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
        (PreviewOut, "cause", set(CompactionTrigger)),
        (PreviewedMessage, "form", set(MessageVariant)),
        (MemoryList, "by", set(get_args(FoundBy))),
    ],
)
def test_the_words_a_field_is_documented_with_are_those_there_are(
    shape: type[Shape], field: str, words: set[str]
) -> None:
    assert words_of(shape, field) == {str(word) for word in words}


def test_times_are_written_with_their_offset_in_digits() -> None:
    assert session_out().model_dump(mode="json")["created_at"] == "2026-05-04T03:02:01+00:00"


FINISHED = {EventType.RUN_STARTED, EventType.MESSAGE_DELTA, EventType.MESSAGE_COMPLETED, EventType.RUN_COMPLETED}


async def told_in(stage: Stage, run: Run) -> set[EventType]:
    """Compare the run's events with their shapes, and return the kinds there were."""
    events = [*await stage.events(run), *await stage.database.followed_runs.replay(run)]
    for event in events:
        rendered = event_json(event.event)
        assert EVENTS[event.type].model_validate(rendered).model_dump(mode="json") == rendered
    return {event.type for event in events}


async def test_a_turn_with_a_tool_and_a_failed_try(database: Database) -> None:
    stage = await open_stage(database)
    call = ToolCall("c1", "calculator", '{"expression": "2+3"}')
    stage.model.script(Fail(AnswerIncomplete("cut"), shown="half"), Call((call,), is_streamed=True), Say("5"))

    kinds = await told_in(stage, await stage.turn("What is 2+3?"))

    of_tools = {EventType.TOOL_CALL_DELTA, EventType.TOOL_CALL, EventType.TOOL_RESULT}
    assert kinds == FINISHED | of_tools | {EventType.RESET}


async def test_turns_without_an_answer(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Fail(ModelQuotaExhausted("no credit")))
    failed = await stage.turn("Hi")
    waiting = await stage.submit("Still there?")
    await database.runs.request_cancel(stage.owner_id, waiting.id)
    cancelled = await database.runs.get_run(stage.owner_id, waiting.id)

    assert EventType.RUN_FAILED in await told_in(stage, failed)
    assert EventType.RUN_CANCELLED in await told_in(stage, cancelled)


async def test_turns_that_make_room(database: Database) -> None:
    model = ScriptedModel(context_limit=2048)
    model.by_request = lambda request: Say("answer " * 60) if request.tools else Say("Intent: numbers.")
    stage = await open_stage(database, agent=with_context(window=2048, min_recent_messages=2), model=model)
    kinds: set[EventType] = set()

    for number in range(8):
        kinds |= await told_in(stage, await stage.turn(f"question {number} " + "word " * 60))

    assert kinds > FINISHED | {EventType.COMPACTION_STARTED, EventType.COMPACTION_FINISHED}
