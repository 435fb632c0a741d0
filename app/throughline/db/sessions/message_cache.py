"""Loading of a session for its next turn: its cached rows, limited in bytes, and what is new since.

Stored messages change only by redaction, which the session counts, so rows stay valid while that count is unchanged.
Positions are assigned under the session's row lock in the storing transaction. So if a message is visible, all earlier
ones are, and none is added before it later.

Rows of sessions not used lately are pickled to bytes, which the garbage collector skips. Otherwise it would visit about
eleven objects per row in every full collection and block the process.
"""

import pickle  # only for data that this process pickled itself
import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from throughline.context.identity_cache import MEMORY_OF_ARGUMENTS, has_short_arguments
from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.sessions.load_context import (
    SUMMARY_PIECES,
    LoadedRows,
    Wanted,
    adopted_from,
    choose_rows,
    first_of_history,
    load_context,
    prepared_from,
)
from throughline.db.statements.rows import (
    MESSAGE_COLUMNS,
    SESSION_COLUMNS,
    columns_of,
    message_from,
    session_from,
    session_not_found,
)
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.message import ImageBlock, Message, TextBlock
from throughline.domain.session import Session
from throughline.domain.summary import Conversation

ROW_BYTES = 4_000
"""Estimated bytes of a row without its texts: ids, times, fields and derived prompt data (1,800 on OpenAI's wire)."""

UNPACKED_ROWS = 2_500
"""Rows kept unpickled. A full collection over them takes about 20 ms; unpickling takes 8 µs per row."""


MOST_NEW = 256
"""New rows up to which only these are read. With more, everything is loaded, since not all may be shown."""

_LOAD_NEWER = sql(
    """
    with s as materialized (
        select {session_columns}, 1 as line,
            array(select p.message_id from message_pins p where p.session_id = s.id) as pins,
            s.redaction_count = :redaction_count and s.message_count - :last <= {most_new} and exists (
                select 1 from messages m where m.session_id = s.id and m.position = :last and m.id = :last_id
            ) as is_known
        from sessions s where s.id = :session_id
    ), shown as (
        select {message_columns} from s cross join lateral (
            select {message_columns} from messages m
            where m.session_id = :session_id and m.position > :last and m.position <= :last + {most_new}
            order by m.position limit {most_new}
        ) m
        where s.is_known
        union all
        select {message_columns} from s cross join messages m
        where s.is_known and m.run_id = cast(:run_id as uuid) and m.session_id = :session_id and m.position < :first
        union all
        select {message_columns} from s cross join unnest(s.pins) as p (message_id) cross join lateral (
            select {message_columns} from messages m
            where m.id = p.message_id and m.position < :first
                and (cast(:run_id as uuid) is null or m.run_id is distinct from :run_id)
            limit 1
        ) m
        where s.is_known
    ), numbered as (
        select shown.*, row_number() over (order by shown.position) as line from shown
    ), {summaries}
    select {prefixed}, s.pins as of_session_pins, s.is_known as of_session_is_known, {of_summaries}, numbered.* {lines}
    order by numbered.position
""",
    session_columns=SESSION_COLUMNS,
    message_columns=MESSAGE_COLUMNS,
    prefixed=columns_of(Session, "s", "of_session_"),
    **SUMMARY_PIECES,
    most_new=str(MOST_NEW),
)
"""Statement that reads the rows after the cached ones, if the cached ones are valid (`is_known`).

They are valid if the redaction count and the newest row's id are unchanged.
After a database restore, or for a session stored again under the same id, that position has another row.
"""


@dataclass(frozen=True, slots=True)
class CachedMessages:
    """Cached rows of one session, at least one and without a gap, valid for this `redaction_count`.

    `max_tokens` is the largest limit of tokens with which they were loaded. Whether a message is pinned is not cached.
    """

    rows: tuple[Message, ...]
    redaction_count: int
    max_tokens: int
    size_bytes: int

    @property
    def first(self) -> int:
        """The position of the oldest cached row."""
        return self.rows[0].position

    @property
    def last(self) -> Message:
        return self.rows[-1]


class MessageCache:
    """The cached rows of the most recently loaded sessions; the least recently loaded session is evicted first."""

    def __init__(self, max_bytes: int, max_unpacked_rows: int = UNPACKED_ROWS) -> None:
        """Cache at most `max_bytes` in all (0: nothing), and pickle rows beyond `max_unpacked_rows`."""
        self._max_bytes = max_bytes
        self._max_unpacked_rows = max_unpacked_rows
        self._sessions: OrderedDict[SessionId, CachedMessages | bytes] = OrderedDict()
        self._unpacked: OrderedDict[SessionId, CachedMessages] = OrderedDict()
        self._unpacked_rows = 0
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def get(self, session_id: SessionId) -> CachedMessages | None:
        """Return the session's cached rows, None if there are none."""
        found = self._sessions.get(session_id)
        if found is None:
            return None
        kept = pickle.loads(found) if isinstance(found, bytes) else found  # noqa: S301  # packed by this process
        assert isinstance(kept, CachedMessages)
        self.keep(session_id, kept)
        return kept

    def keep(self, session_id: SessionId, kept: CachedMessages) -> None:
        """Replace the session's cached rows; rows larger than the whole cache are not cached."""
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


def _size_of_kept(kept: CachedMessages | bytes) -> int:
    return sys.getsizeof(kept) if isinstance(kept, bytes) else kept.size_bytes


async def load_known_context(tx: Statements, loaded: MessageCache, wanted: Wanted) -> Conversation:
    """Load like `load_context`, but reuse the session's cached rows, and cache the loaded ones.

    Raises NotFound.
    """
    kept = loaded.get(wanted.session_id)
    known = None if kept is None else await _load_newer(tx, loaded, kept, wanted)
    if known is not None:
        return known
    conversation = await load_context(tx, wanted)
    now = cacheable_rows(conversation, wanted.max_tokens)
    if now is None:
        loaded.forget(wanted.session_id)
    else:
        loaded.keep(wanted.session_id, now)
    return conversation


async def _load_newer(
    tx: Statements, loaded: MessageCache, kept: CachedMessages, wanted: Wanted
) -> Conversation | None:
    """Return the conversation, None if the cached rows are outdated or insufficient. Raises NotFound."""
    rows = await tx.fetch(
        _LOAD_NEWER,
        session_id=wanted.session_id,
        run_id=wanted.run_id,
        first=kept.first,
        last=kept.last.position,
        last_id=kept.last.id,
        redaction_count=kept.redaction_count,
    )
    if not rows:
        loaded.forget(wanted.session_id)
        raise session_not_found(wanted.session_id)
    found = _read(rows, kept)
    if found is None:
        return None
    cursor, newer = found.session.summary_through_position, found.rows[len(kept.rows) :]
    loaded.keep(wanted.session_id, extend_cached(kept, newer, cursor, wanted))
    return choose_rows(found, wanted)


def _read(rows: Sequence[Row], kept: CachedMessages) -> LoadedRows | None:
    first = next(row for row in rows if row["of_session_id"] is not None)
    if not first["of_session_is_known"]:
        return None
    messages = [message_from(row) for row in rows if row["id"] is not None]
    return LoadedRows(
        session=session_from(first, "of_session_"),
        rows=(*kept.rows, *(message for message in messages if message.position > kept.last.position)),
        early=tuple(message for message in messages if message.position < kept.first),
        pins={MessageId(message_id) for message_id in first["of_session_pins"]},
        prepared=prepared_from(first),
        adopted=adopted_from(first),
    )


def cacheable_rows(loaded: Conversation, max_tokens: int) -> CachedMessages | None:
    """Return the rows to cache of a fully loaded conversation: its newest rows without a gap.

    None if there are none, or if the session's newest message is not among the loaded rows.
    """
    rows = _without_gap(sorted((*loaded.history, *loaded.own), key=lambda row: row.position))
    session = loaded.session
    if not rows or rows[-1].position != session.message_count:
        return None
    plain = tuple(replace(row, pinned=False) if row.pinned else row for row in rows)
    return CachedMessages(plain, session.redaction_count, max_tokens, size_of(plain))


def extend_cached(kept: CachedMessages, newer: tuple[Message, ...], cursor: int, wanted: Wanted) -> CachedMessages:
    """Return the cached rows with `newer` rows appended, without rows that no turn will load again.

    Those are rows up to the cursor, and rows before the history that the largest request so far loads.
    """
    rows, max_tokens = (*kept.rows, *newer), max(kept.max_tokens, wanted.max_tokens)
    first = first_of_history(rows, cursor, replace(wanted, max_tokens=max_tokens))
    gone = tuple(row for row in rows if row.position < min(rows[-1].position, max(cursor + 1, first or 0)))
    size = kept.size_bytes + size_of(newer) - size_of(gone)
    return CachedMessages(rows[len(gone) :], kept.redaction_count, max_tokens, size)


def size_of(rows: Iterable[Message]) -> int:
    """Return the approximate bytes of memory that the rows take."""
    return sum(ROW_BYTES + _size(row.content) + _size(row.metadata) + _size_of_calls(row) for row in rows)


def _size_of_calls(row: Message) -> int:
    texts = sum(ROW_BYTES // 10 + _size(call.name) + _size(call.arguments) for call in row.tool_calls)
    if not has_short_arguments(row.tool_calls):
        return texts
    return texts + MEMORY_OF_ARGUMENTS * sum(len(call.arguments) for call in row.tool_calls)


def _size(value: object) -> int:
    """Return the bytes of a content or JSON value, including everything in it."""
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
    """Return the newest rows that have consecutive positions."""
    start = len(rows) - 1
    while start > 0 and rows[start - 1].position == rows[start].position - 1:
        start -= 1
    return rows[max(start, 0) :]
