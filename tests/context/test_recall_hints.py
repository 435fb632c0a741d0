from datetime import UTC, datetime
from uuid import UUID

from throughline.context.view.groups import build_system
from throughline.context.view.placeholder_texts import NO_HINTS, RECALL_TOOLS, fold_note, hints_for, trim_note
from throughline.context.view.placeholder_texts import stub as stub_of
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.message import Message, Role, Source


def output_at(position: int) -> Message:
    return Message(
        id=MessageId(UUID(int=position)),
        session_id=SessionId(UUID(int=0)),
        position=position,
        role=Role.TOOL,
        content="x" * 500,
        source=Source.API,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        tool_call_id="c1",
        name="grep",
    )


def test_an_agent_without_recall_tools_is_told_nothing() -> None:
    assert hints_for(("calculator",)) == NO_HINTS


def test_every_stub_and_note_names_the_call_that_shows_what_it_stands_for() -> None:
    hints = hints_for(RECALL_TOOLS)

    assert "read_output(7) shows it." in stub_of(output_at(7), hints)
    assert "read_history(3, 9) shows them. search_history finds words in them." in trim_note(3, 9, hints)
    assert "read_history(3, 9) shows them." in fold_note(3, 9, hints)


def test_a_stub_names_only_tools_the_agent_has() -> None:
    assert "read_history(7, 7) shows it." in stub_of(output_at(7), hints_for(("read_history",)))
    assert "search_history finds words in it." in stub_of(output_at(7), hints_for(("search_history",)))


def test_a_summary_tells_how_to_look_up_what_it_leaves_out() -> None:
    hint = hints_for(RECALL_TOOLS).summary

    system = build_system("Be kind.", "They met.", 12, hint)

    assert all(name in system for name in RECALL_TOOLS)
