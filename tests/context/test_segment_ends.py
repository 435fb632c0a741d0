"""Where a segment ends."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughline.context.summaries.segment_ends import LONG_PAUSE, first_segment, valley_depths
from throughline.domain.basic_types import MessageId, SessionId
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


def _message(position: int, role: Role, at: datetime, *, calls: bool = False, text: str = "word " * 5) -> Message:
    return Message(
        id=MessageId(UUID(int=position)),
        session_id=SessionId(UUID(int=0)),
        position=position,
        role=role,
        content=text,
        source=Source.API,
        created_at=at,
        tool_calls=(ToolCall(f"c{position}", "look", "{}"),) if calls else (),
        tool_call_id=f"c{position - 1}" if role is T else None,
    )


def taken(messages: tuple[Message, ...], most: int | None = None, room: int = 10_000) -> int:
    return len(first_segment(messages, room_tokens=room, max_messages=most, count=len))


def test_everything_that_fits_is_one_segment() -> None:
    assert taken(conversation(U, A, U, A, pauses={3: 3 * LONG_PAUSE})) == 4


def test_the_end_is_rather_before_a_user_turn_than_inside_one() -> None:
    assert taken(conversation(U, A, U, A, U, A, A, A, U), most=7) == 4


def test_the_end_is_rather_before_a_long_pause_than_as_late_as_possible() -> None:
    turns = (U, A) * 6

    assert taken(conversation(*turns), most=8) == 8
    assert taken(conversation(*turns, pauses={7: LONG_PAUSE}), most=8) == 6
    assert taken(conversation(*turns, pauses={5: 2 * LONG_PAUSE, 7: LONG_PAUSE}), most=8) == 4


def test_a_pause_near_the_beginning_would_leave_the_segment_too_small() -> None:
    assert taken(conversation(*(U, A) * 6, pauses={3: 9 * LONG_PAUSE}), most=8) == 8


def test_a_call_stays_with_its_result() -> None:
    assert taken(conversation(U, A, T, A, T), most=4) == 3


def test_one_message_that_is_larger_than_the_room_is_a_segment_of_its_own() -> None:
    assert taken(conversation(U, A, U), room=10) == 1


INVOICES = (
    "Which invoices of the printing company are still unpaid?",
    "Two invoices of the printing company are unpaid: March and April.",
    "Send the company a payment for the March invoice, with its number.",
    "The payment for the March invoice is sent, with the invoice number.",
    "And is the April invoice right, with the discount of the printing company?",
    "The April invoice lacks the discount, so its payment waits.",
    "Write the printing company that the discount is missing on the invoice.",
    "The printing company is told that the invoice lacks its discount.",
)
TRIP = (
    "Plan a weekend in Lisbon: which hotel lies near the river and the tram?",
    "The hotel Tejo lies at the river, near the tram to the castle of Lisbon.",
    "Book the hotel for the weekend, and a flight to Lisbon in the morning.",
    "The hotel at the river is booked, and the morning flight to Lisbon.",
    "Where can we eat fish at the river, not far from the hotel?",
    "Near the hotel a small restaurant at the river has fresh fish.",
    "Is there a tram from the restaurant to the castle in the evening?",
    "The tram to the castle of Lisbon runs in the evening, too.",
)


def talk(*texts: str, pauses: dict[int, timedelta] | None = None) -> tuple[Message, ...]:
    """Questions and answers in turn, with these texts."""
    bare = conversation(*(U, A) * (len(texts) // 2), pauses=pauses)
    return tuple(
        _message(message.position, message.role, message.created_at, text=text)
        for message, text in zip(bare, texts, strict=True)
    )


@pytest.mark.parametrize(("first", "second"), [(INVOICES, TRIP), (TRIP, INVOICES)])
@pytest.mark.parametrize("most", [10, 12])
def test_two_subjects_are_two_segments_where_each_fits_one(
    first: tuple[str, ...], second: tuple[str, ...], most: int
) -> None:
    assert taken(talk(*first, *second), most=most) == len(first)


def test_a_long_pause_counts_more_than_a_change_of_subject() -> None:
    assert taken(talk(*INVOICES, *TRIP, pauses={11: LONG_PAUSE}), most=12) == 10


def test_one_subject_alone_is_cut_as_late_as_possible() -> None:
    same = INVOICES[:2] * 8

    assert taken(talk(*same), most=12) == 12


def test_the_valley_is_deepest_where_no_word_is_shared() -> None:
    depths = valley_depths([{"a", "b"}, {"b", "c"}, {"a", "c"}, {"x", "y"}, {"y", "z"}, {"x", "z"}])

    assert max(range(6), key=lambda gap: depths[gap]) == 3


@given(pieces=st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=5), max_size=20))
def test_depths_lie_between_none_and_two_peaks(pieces: list[frozenset[str]]) -> None:
    depths = valley_depths(pieces)

    assert len(depths) == len(pieces)
    assert all(0 <= depth <= 2 for depth in depths)


def test_pieces_that_all_say_the_same_have_no_valley() -> None:
    assert valley_depths([frozenset({"a", "b"})] * 9) == [0.0] * 9


@given(
    roles=st.lists(st.sampled_from([U, A, T]), min_size=1, max_size=30),
    most=st.one_of(st.none(), st.integers(1, 12)),
    room=st.integers(1, 800),
)
def test_segment_after_segment_everything_is_read_once_and_in_order(
    roles: list[Role], most: int | None, room: int
) -> None:
    rest = messages = conversation(*roles)
    read: list[Message] = []
    while rest:
        segment = first_segment(rest, room_tokens=room, max_messages=most, count=len)
        assert segment
        read.extend(segment)
        rest = rest[len(segment) :]

    assert tuple(read) == messages
