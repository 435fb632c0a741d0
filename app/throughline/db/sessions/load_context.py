"""Loading of a session for a turn, in one query whose cost depends only on the messages after the summary's cursor.

The cursor is the last position that the adopted summary covers, 0 without a summary.
"""

from collections.abc import Sequence

from throughline.db.connection.statement import Row
from throughline.db.connection.transactions import Statements
from throughline.db.sessions.newest_rows import Wanted
from throughline.db.sessions.pins import REACH
from throughline.db.statements.rows import (
    MESSAGE_COLUMNS,
    PINNED,
    SESSION_COLUMNS,
    message_from,
    prefixed,
    session_from,
    session_not_found,
)
from throughline.db.statements.sql import sql
from throughline.domain.conversation import Conversation
from throughline.domain.ids import MessageId, SummaryId
from throughline.domain.summary import AdoptedSummary, Prepared

STEP = 64
"""Positions read per step of the backward scan; at most this many rows are read needlessly."""

_PREPARED_NAMES = ("id", "base_version", "text", "token_count", "through_position", "created_at", "model")
_ADOPTED_NAMES = ("version", "token_count", "through_id", "through_position", "model", "created_at")
_PREPARED = ", ".join(f"v.{name} as of_prepared_{name}" for name in _PREPARED_NAMES)
_ADOPTED = ", ".join(f"v.{name} as of_adopted_{name}" for name in _ADOPTED_NAMES)

SUMMARY_PIECES = {
    "summaries": f"""waiting as (
        select {_PREPARED}, 1 as line from s join summary_versions v
            on v.session_id = s.id and v.state = 'prepared' and v.base_version = s.summary_version
    ), adopted as (
        select {_ADOPTED}, 1 as line from s join summary_versions v on v.session_id = s.id and v.state = 'adopted'
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
    prefixed=prefixed(SESSION_COLUMNS, "s", "of_session_"),
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
    if row["of_adopted_version"] is None:
        return None
    through = row["of_adopted_through_id"]
    return AdoptedSummary(
        version=row["of_adopted_version"],
        token_count=row["of_adopted_token_count"],
        through_id=None if through is None else MessageId(through),
        through_position=row["of_adopted_through_position"],
        model=row["of_adopted_model"],
        created_at=row["of_adopted_created_at"],
    )


def prepared_from(row: Row) -> Prepared | None:
    """Return the prepared summary in a row with SUMMARY_PIECES, None if there is none."""
    if row["of_prepared_id"] is None:
        return None
    return Prepared(
        id=SummaryId(row["of_prepared_id"]),
        base_version=row["of_prepared_base_version"],
        text=row["of_prepared_text"],
        token_count=row["of_prepared_token_count"],
        through_position=row["of_prepared_through_position"],
        created_at=row["of_prepared_created_at"],
        model=row["of_prepared_model"],
    )
