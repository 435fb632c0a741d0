"""Rows that this process has loaded, kept for the next turn of their session: within a bound of bytes.

A stored message never changes but by a redaction, which the session counts; so a row is good for as long as the count
is the same. Positions are given out under the lock of the session's row, in the transaction that stores the message:
when one can be seen, so can all before it, and none before it comes later.

Rows of sessions that were not used lately are packed into bytes. The garbage collector does not walk bytes; it would
walk about eleven objects for each row in every full pass, and the whole process would wait for it.
"""

import pickle  # only for what this process packed itself
import sys
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from throughline.db.sessions.newest_rows import Wanted, first_of_history
from throughline.domain.conversation import Conversation
from throughline.domain.identity_cache import MEMORY_OF_ARGUMENTS, has_short_arguments
from throughline.domain.ids import SessionId
from throughline.domain.message import ImageBlock, Message, TextBlock

ROW_BYTES = 4_000
"""A row without its texts: its ids, times and fields, and what is made of it for prompts (on OpenAI's wire: 1,800)."""

UNPACKED_ROWS = 2_500
"""Rows that stay as they are: a full pass over them takes some 20 ms, unpacking a session's takes 8 µs a row."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows of one session, without a gap and at least one, as they were while it had counted so many redactions.

    `max_tokens` is the most that was asked for while they were kept. Whether a row is pinned is not kept.
    """

    rows: tuple[Message, ...]
    redaction_count: int
    max_tokens: int
    size_bytes: int

    @property
    def first(self) -> int:
        """The position they begin at."""
        return self.rows[0].position

    @property
    def last(self) -> Message:
        """The newest of them."""
        return self.rows[-1]


class LoadedRows:
    """Rows of the sessions that were loaded last; the one not loaded for longest is forgotten first."""

    def __init__(self, max_bytes: int, max_unpacked_rows: int = UNPACKED_ROWS) -> None:
        """Keep rows of at most so many bytes together, with 0 none; pack what is beyond `max_unpacked_rows`."""
        self._max_bytes = max_bytes
        self._max_unpacked_rows = max_unpacked_rows
        self._sessions: OrderedDict[SessionId, KeptRows | bytes] = OrderedDict()
        self._unpacked: OrderedDict[SessionId, KeptRows] = OrderedDict()
        self._unpacked_rows = 0
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """What is kept now."""
        return self._bytes

    def get(self, session_id: SessionId) -> KeptRows | None:
        """Return what is kept of the session."""
        found = self._sessions.get(session_id)
        if found is None:
            return None
        kept = pickle.loads(found) if isinstance(found, bytes) else found  # noqa: S301  # packed by this process
        assert isinstance(kept, KeptRows)
        self.keep(session_id, kept)
        return kept

    def keep(self, session_id: SessionId, kept: KeptRows) -> None:
        """Keep these rows in the place of what is kept of the session; rows beyond the bound are not kept at all."""
        self.forget(session_id)
        if kept.size_bytes > self._max_bytes:
            return
        self._sessions[session_id] = self._unpacked[session_id] = kept
        self._unpacked_rows += len(kept.rows)
        self._bytes += kept.size_bytes
        while self._unpacked_rows > self._max_unpacked_rows and len(self._unpacked) > 1:
            self._pack(next(iter(self._unpacked)))
        while self._bytes > self._max_bytes:
            self.forget(next(iter(self._sessions)))

    def forget(self, session_id: SessionId) -> None:
        """Keep nothing of the session."""
        dropped = self._sessions.pop(session_id, None)
        if dropped is not None:
            self._bytes -= _size_of_kept(dropped)
        if session_id in self._unpacked:
            self._unpacked_rows -= len(self._unpacked.pop(session_id).rows)

    def _pack(self, session_id: SessionId) -> None:
        kept = self._unpacked.pop(session_id)
        packed = pickle.dumps(kept, pickle.HIGHEST_PROTOCOL)
        self._unpacked_rows -= len(kept.rows)
        self._bytes += _size_of_kept(packed) - kept.size_bytes
        self._sessions[session_id] = packed


def _size_of_kept(kept: KeptRows | bytes) -> int:
    return sys.getsizeof(kept) if isinstance(kept, bytes) else kept.size_bytes


def kept_of(loaded: Conversation, max_tokens: int) -> KeptRows | None:
    """Return what may be kept of a conversation that was loaded whole, None where that is nothing."""
    rows = _without_gap(sorted((*loaded.history, *loaded.own), key=lambda row: row.position))
    session = loaded.session
    if not rows or rows[-1].position != session.message_count:
        return None
    plain = tuple(replace(row, pinned=False) if row.pinned else row for row in rows)
    return KeptRows(plain, session.redaction_count, max_tokens, size_of(plain))


def with_newer(kept: KeptRows, newer: tuple[Message, ...], cursor: int, wanted: Wanted) -> KeptRows:
    """Return what is kept with `newer` rows behind it, without those that nobody will ask for again.

    Those are rows up to the cursor and, by the largest question so far, before what a turn loads of the rest.
    """
    rows, max_tokens = (*kept.rows, *newer), max(kept.max_tokens, wanted.max_tokens)
    first = first_of_history(rows, cursor, replace(wanted, max_tokens=max_tokens))
    gone = tuple(row for row in rows if row.position < min(rows[-1].position, max(cursor + 1, first or 0)))
    size = kept.size_bytes + size_of(newer) - size_of(gone)
    return KeptRows(rows[len(gone) :], kept.redaction_count, max_tokens, size)


def size_of(rows: Iterable[Message]) -> int:
    """Return about how many bytes of memory the rows take."""
    return sum(ROW_BYTES + _size(row.content) + _size(row.metadata) + _size_of_calls(row) for row in rows)


def _size_of_calls(row: Message) -> int:
    texts = sum(ROW_BYTES // 10 + _size(call.name) + _size(call.arguments) for call in row.tool_calls)
    if not has_short_arguments(row.tool_calls):
        return texts
    return texts + MEMORY_OF_ARGUMENTS * sum(len(call.arguments) for call in row.tool_calls)


def _size(value: object) -> int:
    """Return the bytes of a content or of JSON, all that is in it included."""
    match value:
        case dict():
            return sys.getsizeof(value) + sum(_size(key) + _size(item) for key, item in value.items())
        case list() | tuple():
            return sys.getsizeof(value) + sum(_size(item) for item in value)
        case TextBlock(text=text):
            return ROW_BYTES // 10 + sys.getsizeof(text)
        case ImageBlock(url=url):
            return ROW_BYTES // 10 + sys.getsizeof(url)
        case _:
            return sys.getsizeof(value)


def _without_gap(rows: list[Message]) -> list[Message]:
    """Return the newest of the rows, as many as follow each other."""
    start = len(rows) - 1
    while start > 0 and rows[start - 1].position == rows[start].position - 1:
        start -= 1
    return rows[max(start, 0) :]
