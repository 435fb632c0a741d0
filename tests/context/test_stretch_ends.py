"""Where a stretch ends."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from throughline.context.summaries.stretch_ends import LONG_PAUSE, first_stretch
from throughline.domain.ids import MessageId, SessionId
from throughline.domain.message import Message, Role, Source, ToolCall

START = datetime(2026, 1, 1, tzinfo=UTC)
U, A, T = Role.USER, Role.ASSISTANT, Role.TOOL


def conversation(*roles: Role, pauses: dict[int, timedelta] | None = None) -> tuple[Message, ...]:
    """Messages at positions 1, 2, 3 …, a second apart; `pauses` come before the positions named."""
    found: list[Message] = []
    at = START
    for position, role in enumerate(roles, start=1):
        at += (pauses or {}).get(position, timedelta(seconds=1))
        found.append(_message(position, role, at, calls=roles[position : position + 1] == (T,)))
    return tuple(found)


def _message(position: int, role: Role, at: datetime, *, calls: bool) -> Message:
    return Message(
        id=MessageId(UUID(int=position)),
        session_id=SessionId(UUID(int=0)),
        position=position,
        role=role,
        content="word " * 5,
        source=Source.API,
        created_at=at,
        tool_calls=(ToolCall(f"c{position}", "look", "{}"),) if calls else (),
        tool_call_id=f"c{position - 1}" if role is T else None,
    )


def taken(messages: tuple[Message, ...], most: int | None = None, room: int = 10_000) -> int:
    return len(first_stretch(messages, room_tokens=room, max_messages=most, count=len))


def test_everything_that_fits_is_one_stretch() -> None:
    assert taken(conversation(U, A, U, A, pauses={3: 3 * LONG_PAUSE})) == 4


def test_the_end_is_rather_before_a_user_turn_than_inside_one() -> None:
    assert taken(conversation(U, A, U, A, U, A, A, A, U), most=7) == 4


def test_the_end_is_rather_before_a_long_pause_than_as_late_as_possible() -> None:
    turns = (U, A) * 6

    assert taken(conversation(*turns), most=8) == 8
    assert taken(conversation(*turns, pauses={7: LONG_PAUSE}), most=8) == 6
    assert taken(conversation(*turns, pauses={5: 2 * LONG_PAUSE, 7: LONG_PAUSE}), most=8) == 4


def test_a_pause_near_the_beginning_would_leave_the_stretch_too_small() -> None:
    assert taken(conversation(*(U, A) * 6, pauses={3: 9 * LONG_PAUSE}), most=8) == 8


def test_a_call_stays_with_its_result() -> None:
    assert taken(conversation(U, A, T, A, T), most=4) == 3


def test_one_message_that_is_larger_than_the_room_is_a_stretch_of_its_own() -> None:
    assert taken(conversation(U, A, U), room=10) == 1


@given(
    roles=st.lists(st.sampled_from([U, A, T]), min_size=1, max_size=30),
    most=st.one_of(st.none(), st.integers(1, 12)),
    room=st.integers(1, 800),
)
def test_stretch_after_stretch_everything_is_read_once_and_in_order(
    roles: list[Role], most: int | None, room: int
) -> None:
    rest = messages = conversation(*roles)
    read: list[Message] = []
    while rest:
        stretch = first_stretch(rest, room_tokens=room, max_messages=most, count=len)
        assert stretch
        read.extend(stretch)
        rest = rest[len(stretch) :]

    assert tuple(read) == messages
