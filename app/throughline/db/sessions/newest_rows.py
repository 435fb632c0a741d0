"""Selection of a session's message rows for a turn, from rows in memory. It selects the same rows as LOAD_CONTEXT."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from throughline.db.sessions.pins import REACH
from throughline.domain.conversation import Conversation
from throughline.domain.ids import MessageId, RunId, SessionId
from throughline.domain.message import Message, Role
from throughline.domain.session import Session
from throughline.domain.summary import AdoptedSummary, Prepared

SHARE_EACH, LEAST_EACH = 8, 64
"""A message counts at most this fraction of the tokens to load, but at least LEAST_EACH tokens.

Two windows are loaded, so an eighth is a quarter of the window. No prompt shows more of one message for long, and one
huge tool output must not displace all messages before it.
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The message rows to load for a turn: the session, the run (None: no run), and the most tokens of history."""

    session_id: SessionId
    run_id: RunId | None
    max_tokens: int

    @property
    def most_each(self) -> int:
        """The most tokens that one message counts."""
        return max(self.max_tokens // SHARE_EACH, LEAST_EACH)

    def is_own(self, row: Message) -> bool:
        """Whether the row belongs to the run."""
        return self.run_id is not None and row.run_id == self.run_id


@dataclass(frozen=True, slots=True)
class Found:
    """A session with some of its message rows.

    `rows` are all rows from a position to the last, at least one, without a gap.

    `early` are earlier rows that are pinned or the run's own, in order; `pins` are the ids of all pinned messages.
    """

    session: Session
    rows: tuple[Message, ...]
    early: tuple[Message, ...]
    pins: AbstractSet[MessageId]
    prepared: Prepared | None
    adopted: AdoptedSummary | None


def choose_rows(found: Found, wanted: Wanted) -> Conversation | None:
    """Return the conversation that LOAD_CONTEXT would return, None if it needs rows that are not in `found`."""
    first = first_of_history(found.rows, found.session.summary_through_position, wanted)
    if first is None:
        return None
    rows = _with_pins((*found.early, *found.rows), found.pins)
    others = [row for row in rows if not wanted.is_own(row)]
    return Conversation(
        session=found.session,
        history=tuple(row for row in others if row.position >= first),
        own=tuple(row for row in rows if wanted.is_own(row)),
        pinned=tuple(row for row in others if row.pinned and row.position < first),
        prepared=found.prepared,
        adopted=found.adopted,
    )


def _with_pins(rows: tuple[Message, ...], pins: AbstractSet[MessageId]) -> tuple[Message, ...]:
    if not pins:
        return rows
    return tuple(replace(row, pinned=True) if row.id in pins else row for row in rows)


def first_of_history(rows: Sequence[Message], cursor: int, wanted: Wanted) -> int | None:
    """Return the first position of the history to load, None if it may be older than the first of `rows`.

    `rows` have no gap, and `cursor` is the last position that the summary covers. The first position is that of the
    message that reaches `max_tokens`, or of its tool call if that message is a tool result.
    """
    others = [row for row in rows if row.position > cursor and not wanted.is_own(row)]
    left, edge, most_each = wanted.max_tokens, None, wanted.most_each
    for row in reversed(others):
        if left <= 0:
            break
        edge, left = row, left - min(row.token_count, most_each)
    if left > 0 and rows[0].position > cursor + 1:
        return None
    if edge is None:
        return rows[-1].position + 1
    return _call_of(edge, others, max(edge.position - REACH, cursor + 1), rows[0].position)


def _call_of(edge: Message, others: Sequence[Message], least: int, known_from: int) -> int | None:
    """Return the position of the call that `edge` answers, if it is at least `least`; else the position of `edge`.

    Return None if the call may be older than `known_from`, the first loaded position.
    """
    if edge.role is not Role.TOOL:
        return edge.position
    for row in reversed(others):
        if least <= row.position < edge.position and any(call.id == edge.tool_call_id for call in row.tool_calls):
            return row.position
    return edge.position if known_from <= least else None
