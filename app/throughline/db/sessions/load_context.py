"""Loading of a session for a turn, in one query whose cost depends only on the messages after the summary's cursor.

The cursor is the last position that the adopted summary covers, 0 without a summary.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.sessions.pins import REACH
from throughline.db.statements.rows import (
    MESSAGE_COLUMNS,
    PINNED,
    SESSION_COLUMNS,
    columns_of,
    fields_from,
    message_from,
    session_from,
    session_not_found,
)
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import MessageId, RunId, SessionId
from throughline.domain.message import Message, Role
from throughline.domain.reasoning import Reasoning
from throughline.domain.session import Session
from throughline.domain.summary import AdoptedSummary, Conversation, Prepared

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
class LoadedRows:
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


def choose_rows(found: LoadedRows, wanted: Wanted) -> Conversation | None:
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


STEP = 64
"""Positions read per step of the backward scan; at most this many rows are read needlessly."""

SUMMARY_PIECES = {
    "summaries": f"""waiting as (
        select {columns_of(Prepared, "v", "of_prepared_")}, 1 as line from s join summary_versions v
            on v.session_id = s.id and v.state = 'prepared' and v.base_version = s.summary_version
    ), adopted as (
        select {columns_of(AdoptedSummary, "v", "of_adopted_")}, 1 as line from s join summary_versions v
            on v.session_id = s.id and v.state = 'adopted'
    )""",  # noqa: S608  # our own column names
    "of_summaries": "waiting.*, adopted.*",
    "lines": """
    from numbered full join s on s.line = numbered.line left join waiting on waiting.line = s.line
        left join adopted on adopted.line = s.line""",
}
"""SQL fragments that add the prepared and the adopted summary to the first row of a result.

For statements with a session `s`, whose `line` is 1, and messages `numbered` by line. `prepared_from` and
`adopted_from` read the columns.
"""

LOAD_CONTEXT = sql(
    """
    with recursive s as materialized (
        select {session_columns}, 1 as line from sessions s where s.id = :session_id
    ), walk (low, high, tokens) as (
        select s.message_count + 1, s.message_count + 1, cast(0 as bigint) from s
        union all
        select greatest(walk.low - {step}, s.summary_through_position + 1), walk.low, walk.tokens + step.tokens
        from walk cross join s cross join lateral (
            select coalesce(sum(least(m.token_count, :most_each)), 0) as tokens from messages m
            where m.session_id = :session_id and m.position < walk.low
                and m.position >= greatest(walk.low - {step}, s.summary_through_position + 1)
                and (cast(:run_id as uuid) is null or m.run_id is distinct from :run_id)
        ) step
        where walk.tokens < :max_tokens and walk.low > s.summary_through_position + 1
    ), newest as (
        select {message_columns}, m.pinned,
            sum(least(m.token_count, :most_each)) over (order by m.position desc) - least(m.token_count, :most_each)
                as newer_tokens
        from walk cross join lateral (
            select {message_columns}, {pinned} from messages m
            where m.session_id = :session_id and m.position >= walk.low and m.position < walk.high
                and (cast(:run_id as uuid) is null or m.run_id is distinct from :run_id)
            order by m.position desc limit {step}
        ) m
    ), edge as (
        select n.position, n.role, n.tool_call_id from newest n where n.newer_tokens < :max_tokens
        order by n.position limit 1
    ), call as (
        select c.position from edge cross join s cross join lateral (
            select m.position from messages m
            where m.session_id = :session_id and m.position < edge.position
                and m.position >= greatest(edge.position - {reach}, s.summary_through_position + 1)
                and (cast(:run_id as uuid) is null or m.run_id is distinct from :run_id)
                and m.tool_calls @> jsonb_build_array(jsonb_build_object('id', edge.tool_call_id))
            order by m.position desc limit 1
        ) c
        where edge.role = 'tool'
    ), reach (low, read_from) as (
        select coalesce((select call.position from call), (select edge.position from edge), min(walk.low)),
            min(walk.low)
        from walk
    ), shown as (
        select {message_columns}, m.pinned, case when m.position >= reach.low then 'history' else 'pinned' end as place
        from newest m cross join reach where m.position >= reach.low or m.pinned
        union all
        select {message_columns}, m.pinned, 'history' from reach cross join lateral (
            select {message_columns}, {pinned} from messages m
            where m.session_id = :session_id and m.position >= reach.low and m.position < reach.read_from
                and (cast(:run_id as uuid) is null or m.run_id is distinct from :run_id)
            order by m.position limit {reach}
        ) m
        union all
        select {message_columns}, {pinned}, 'own' from messages m
        where m.run_id = cast(:run_id as uuid) and m.session_id = :session_id
        union all
        select {message_columns}, true, 'pinned' from message_pins p cross join lateral (
            select {message_columns} from messages m
            where m.id = p.message_id and m.position < (select least(reach.low, reach.read_from) from reach)
                and (cast(:run_id as uuid) is null or m.run_id is distinct from :run_id)
            limit 1
        ) m
        where p.session_id = :session_id
    ), numbered as (
        select shown.*, row_number() over (order by shown.position) as line from shown
    ), {summaries}
    select {prefixed}, {of_summaries}, numbered.* {lines}
    order by numbered.position
""",
    session_columns=SESSION_COLUMNS,
    step=str(STEP),
    reach=str(REACH),
    message_columns=MESSAGE_COLUMNS,
    pinned=PINNED,
    prefixed=columns_of(Session, "s", "of_session_"),
    **SUMMARY_PIECES,
)


async def load_context(tx: Statements, wanted: Wanted) -> Conversation:
    """Load the session, its newest messages after the cursor, the run's own and all pinned ones.

    The prepared summary and data of the adopted one are loaded, too, if they exist.

    History starts with the message that reaches `max_tokens`, so that even one huge message is loaded and can be
    shortened. One message counts at most an eighth of `max_tokens`. If history would start with a tool result, it
    starts with the call instead, if that is after the cursor and within REACH. Results without their call are not
    shown.

    Every range of positions is closed and limited. For an open range the planner assumes a third of the session and
    would read all of it. Pins are looked up one by one for the same reason. The session's columns are sent in one row
    only. Raises NotFound.
    """
    rows = await tx.fetch(
        LOAD_CONTEXT,
        session_id=wanted.session_id,
        run_id=wanted.run_id,
        max_tokens=wanted.max_tokens,
        most_each=wanted.most_each,
    )
    if not rows:
        raise session_not_found(wanted.session_id)
    return _read(rows)


def _read(rows: Sequence[Row]) -> Conversation:
    first = next(row for row in rows if row["of_session_id"] is not None)
    session = session_from(first, "of_session_")
    placed = [(row["place"], message_from(row)) for row in rows if row["id"] is not None]
    history, own, pinned = (
        tuple(message for place, message in placed if place == wanted) for wanted in ("history", "own", "pinned")
    )
    return Conversation(
        session, history, own, pinned=pinned, prepared=prepared_from(first), adopted=adopted_from(first)
    )


def adopted_from(row: Row) -> AdoptedSummary | None:
    """Return the adopted summary in a row with SUMMARY_PIECES, None if there is none."""
    found = fields_from(AdoptedSummary, row, "of_adopted_")
    return None if found["version"] is None else AdoptedSummary(**found)


def prepared_from(row: Row) -> Prepared | None:
    """Return the prepared summary in a row with SUMMARY_PIECES, None if there is none."""
    found = fields_from(Prepared, row, "of_prepared_")
    return None if found["id"] is None else Prepared(**found)


_RETURNED = sql("select message_id, model, parts from returned_reasoning where run_id = :run_id")


async def with_returned_reasoning(tx: Statements, conversation: Conversation, run_id: RunId | None) -> Conversation:
    """Return the conversation with the parts in the run's own steps. A run without steps costs no statement."""
    if run_id is None or not any(message.tool_calls for message in conversation.own):
        return conversation
    found = {
        MessageId(row["message_id"]): Reasoning(parts=tuple(row["parts"]), model=row["model"])
        for row in await tx.fetch(_RETURNED, run_id=run_id)
    }
    return replace(
        conversation, own=tuple(_with_reasoning(message, found.get(message.id)) for message in conversation.own)
    )


def _with_reasoning(message: Message, found: Reasoning | None) -> Message:
    return message if found is None else replace(message, reasoning=found)
