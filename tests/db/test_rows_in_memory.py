"""The memory that kept rows take: bounded whatever comes, and counted for no less than it is."""

import gc
import pickle
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughline.db.sessions.load_context import Wanted
from throughline.db.sessions.message_cache import CachedMessages, MessageCache, cacheable_rows, extend_cached, size_of
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import JsonObject, MessageId, SessionId, UserId
from throughline.domain.message import ImageBlock, Message, Role, Source, TextBlock, ToolCall
from throughline.domain.session import Session
from throughline.domain.summary import Conversation

IDS = [SessionId(new_id()) for _ in range(5)]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MOST = 60_000


def row(position: int, text: str = "x", *, tokens: int = 1) -> Message:
    return Message(MessageId(new_id()), IDS[0], position, Role.USER, text, Source.API, NOW, token_count=tokens)


def kept(*rows: Message, max_tokens: int = 1000) -> CachedMessages:
    return CachedMessages(rows, 0, max_tokens, size_of(rows))


@given(st.lists(st.tuples(st.sampled_from(IDS), st.integers(0, 20_000), st.sampled_from(("keep", "get", "forget")))))
def test_the_bound_holds_and_who_was_asked_for_last_stays(acts: list[tuple[SessionId, int, str]]) -> None:
    loaded, expected = MessageCache(MOST), dict[SessionId, CachedMessages]()
    for session_id, length, act in acts:
        before = expected.pop(session_id, None)
        if act == "keep":
            loaded.keep(session_id, kept(row(1, "x" * length), row(2)))
            expected[session_id] = kept(row(1, "x" * length), row(2))
        elif act == "forget":
            loaded.forget(session_id)
        elif before is not None:
            loaded.get(session_id)
            expected[session_id] = before
        while sum(item.size_bytes for item in expected.values()) > MOST:
            expected.pop(next(iter(expected)))

        assert loaded.size_bytes == sum(item.size_bytes for item in expected.values()) <= MOST
    assert [loaded.get(one) is not None for one in IDS] == [one in expected for one in IDS]


@pytest.mark.slow
def test_rows_of_sessions_not_used_lately_are_no_objects_that_the_collector_walks() -> None:
    sessions = [SessionId(new_id()) for _ in range(50)]
    expected = {session_id: kept(row(1, "é" * number), row(2)) for number, session_id in enumerate(sessions)}
    loaded = MessageCache(1_000_000, max_unpacked_rows=10)
    before = _walked_messages()
    for session_id, rows in expected.items():
        loaded.keep(session_id, pickle.loads(pickle.dumps(rows)))  # noqa: S301  # copies of its own
    walked, size = _walked_messages() - before, loaded.size_bytes

    assert walked <= 10
    assert {session_id: loaded.get(session_id) for session_id in sessions} == expected
    assert loaded.size_bytes == pytest.approx(size, rel=0.05)


def _walked_messages() -> int:
    gc.collect()
    return sum(isinstance(found, Message) for found in gc.get_objects())


def test_rows_of_one_session_beyond_the_unpacked_ones_stay_as_they_are() -> None:
    loaded, rows = MessageCache(1_000_000, max_unpacked_rows=1), kept(row(1), row(2))

    loaded.keep(IDS[0], rows)

    assert loaded.get(IDS[0]) is rows


def test_rows_beyond_the_bound_are_not_kept_and_take_nobody_elses_place() -> None:
    loaded = MessageCache(MOST)
    loaded.keep(IDS[0], kept(row(1)))
    loaded.keep(IDS[1], kept(row(1)))

    loaded.keep(IDS[1], kept(row(1, "x" * MOST)))

    assert [loaded.get(one) is not None for one in IDS[:2]] == [True, False]


def test_without_a_bound_nothing_is_kept() -> None:
    loaded = MessageCache(0)

    loaded.keep(IDS[0], kept(row(1)))

    assert loaded.get(IDS[0]) is None
    assert loaded.size_bytes == 0


@given(
    texts=st.lists(st.text(max_size=30), min_size=2, max_size=40),
    cursor=st.integers(0, 45),
    known=st.integers(1, 30),
    most=st.integers(1, 500),
)
def test_what_is_kept_has_no_gap_and_its_size_is_right(texts: list[str], cursor: int, known: int, most: int) -> None:
    rows = tuple(row(number, text, tokens=20) for number, text in enumerate(texts, 1))
    known = min(known, len(rows) - 1)

    now = extend_cached(kept(*rows[:known]), rows[known:], cursor, Wanted(IDS[0], None, most))

    assert now.rows == rows[len(rows) - len(now.rows) :]
    assert now.size_bytes == size_of(now.rows)
    assert len(now.rows) >= min(len(rows) - cursor, 50) or cursor >= len(rows)


def test_a_conversation_whose_newest_rows_are_missing_is_not_kept() -> None:
    session = Session(IDS[0], UserId(new_id()), "a", "", Source.API, NOW, NOW, message_count=3)

    assert cacheable_rows(Conversation(session, (row(1), row(2))), 10) is None
    assert cacheable_rows(Conversation(session), 10) is None
    whole = cacheable_rows(Conversation(session, (row(1), replace(row(3), pinned=True))), 10)
    assert whole is not None
    assert [(message.position, message.pinned) for message in whole.rows] == [(3, False)]


def test_rows_are_counted_for_no_less_than_they_take() -> None:
    tracemalloc.start()
    rows = [full_row(number) for number in range(200)]
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert taken <= size_of(rows) <= 4 * taken


def full_row(number: int) -> Message:
    blocks = (TextBlock(f"{number} " * 300), ImageBlock("data:image/png;base64," + f"{number}" * 900))
    calls = tuple(ToolCall(f"call-{number}-{n}", f"tool-{number}", '{"a": "' + f"{n}" * 200 + '"}') for n in range(2))
    metadata: JsonObject = {"of": {"number": number, "words": [f"word {number} {n}" for n in range(20)]}}
    return Message(
        MessageId(new_id()),
        SessionId(new_id()),
        number,
        Role.ASSISTANT,
        blocks,
        Source.API,
        datetime.now(UTC),
        tool_calls=calls,
        name=f"name {number}",
        metadata=metadata,
    )
