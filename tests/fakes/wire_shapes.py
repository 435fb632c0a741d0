"""Shapes of the wire with all their fields, of which a test names those it is about."""

from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from throughline.wire.context import (
    ContextOut,
    PreviewedMessage,
    PreviewOut,
    SessionContextOut,
    SummariserOut,
    SummaryOut,
)
from throughline.wire.events import RunOut
from throughline.wire.json_shape import Shape
from throughline.wire.messages import CitedMessageOut, MessageOut
from throughline.wire.service import UsageOut
from throughline.wire.sessions import SessionOut, SummaryVersionOut

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
RUN_ID = "01900000-0000-7000-8000-0000000000aa"
SESSION_ID = str(UUID(int=1))
Made = TypeVar("Made", bound=Shape)


def session_out(**changes: object) -> SessionOut:
    shape = SessionOut(
        id=SESSION_ID,
        agent="assistant",
        title="",
        source="cli",
        message_count=0,
        summarized_count=0,
        created_at=NOW,
        updated_at=NOW,
        external_id=None,
        metadata={},
        archived=False,
        summary_instructions="",
    )
    return changed(shape, **changes)


def message_out(position: int, **changes: object) -> MessageOut:
    shape = MessageOut(
        id=message_id(position),
        position=position,
        role="user" if position % 2 else "assistant",
        content=f"text {position}",
        tool_calls=[],
        tool_call_id=None,
        name=None,
        run_id=RUN_ID,
        author="local",
        token_count=3,
        source="cli",
        pinned=False,
        created_at=NOW,
        metadata={},
    )
    return changed(shape, **changes)


def cited_message_out(position: int, **changes: object) -> CitedMessageOut:
    return changed(CitedMessageOut.model_validate(message_out(position)), **changes)


def message_id(position: int) -> str:
    return str(UUID(int=0xAA0000 + position))


def run_out(**changes: object) -> RunOut:
    shape = RunOut(
        id=RUN_ID,
        session_id=SESSION_ID,
        status="running",
        source="cli",
        author="local",
        actor=None,
        created_at=NOW,
        started_at=NOW,
        finished_at=None,
        attempt=1,
        cancel_requested=False,
        usage=UsageOut(input_tokens=None, output_tokens=None),
        error=None,
        user_message_id=message_id(1),
        message_id=None,
    )
    return changed(shape, **changes)


def summary_out(**changes: object) -> SummaryOut:
    shape = SummaryOut(
        messages_summarized=25, token_count=812, created_at=NOW, through_id=None, through_position=25, model="m"
    )
    return changed(shape, **changes)


def version_out(number: int, **changes: object) -> SummaryVersionOut:
    """Return the version `number`, which is in use and stands for ten messages a version."""
    shape = SummaryVersionOut(
        id=str(UUID(int=number)),
        version=number,
        state="adopted",
        text="t",
        segments=1,
        token_count=90,
        through_id=message_id(10 * number),
        through_position=10 * number,
        model="m",
        created_at=NOW,
    )
    return changed(shape, **changes)


def context_out(**changes: object) -> ContextOut:
    shape = ContextOut(
        agent="assistant",
        model="offline",
        context_window=8_192,
        response_reserve=2_048,
        system_tokens=0,
        tools_tokens=0,
        summary_tokens=0,
        message_tokens=3_000,
        total_tokens=3_000,
        unreduced_tokens=3_000,
        last_stage=None,
        threshold_tokens=6_144,
        usage_percent=36.6,
        counted_from_position=0,
        messages_since_summary=12,
        messages_threshold=30,
        messages_percent=40.0,
        tokens_since_summary=2_500,
        tokens_threshold=128_000,
        tokens_percent=2.0,
        will_trigger=False,
        next_action="none",
        next_trigger=None,
        summary_count=0,
        last_summary_at=None,
        estimated_response_tokens=700,
        summary=None,
        prepared=None,
        summariser=SummariserOut(model="offline", state="closed", retry_after_seconds=0),
        summary_failure=None,
    )
    return changed(shape, **changes)


def session_context_out(**changes: object) -> SessionContextOut:
    return changed(SessionContextOut.model_validate(context_out()), **changes)


def preview_out(*messages: PreviewedMessage, **changes: object) -> PreviewOut:
    shape = PreviewOut(
        action="none",
        cause=None,
        fired=[],
        tokens=5_900,
        unreduced_tokens=5_900,
        window=8_192,
        usage_percent=72.0,
        threshold_tokens=5_836,
        budget_tokens=6_144,
        floor_too_high=False,
        summarised_through=0,
        summarise=None,
        messages=list(messages),
    )
    return changed(shape, **changes)


def changed(shape: Made, **changes: object) -> Made:
    """Return the shape with other values; the fields must be there."""
    assert changes.keys() <= type(shape).model_fields.keys()
    return shape.model_copy(update=changes)
