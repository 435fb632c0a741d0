"""Messages and segments of a session, made by hand, for tests of what summarisers read and write."""

from datetime import UTC, datetime
from uuid import UUID

from throughline.domain.basic_types import MessageId, SegmentId, SessionId
from throughline.domain.message import Message, Role, Source, ToolCall
from throughline.domain.summary import Segment


def message(
    position: int,
    role: Role,
    text: str,
    *,
    author: str | None = None,
    calls: tuple[ToolCall, ...] = (),
    call_id: str | None = None,
    name: str | None = None,
) -> Message:
    """Return a stored message."""
    return Message(
        id=MessageId(UUID(int=position)),
        session_id=SessionId(UUID(int=1)),
        position=position,
        role=role,
        content=text,
        source=Source.API,
        created_at=datetime(2026, 1, 5, tzinfo=UTC),
        tool_calls=calls,
        tool_call_id=call_id,
        name=name,
        author=author,
    )


def segment_of(first: int, last: int, text: str, *, level: int = 0) -> Segment:
    """Return a segment over these positions."""
    return Segment(
        id=SegmentId(UUID(int=first)),
        from_position=first,
        through_position=last,
        through_id=MessageId(UUID(int=last)),
        level=level,
        text=text,
        token_count=max(len(text) // 4, 1),
        model="double",
        read_hash=f"{first}-{last}",
    )
