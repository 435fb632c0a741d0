"""Loading what a turn needs of its session in one query whose cost depends only on what stands after the cursor."""

from collections.abc import Sequence

from sqlalchemy import RowMapping

from app.db.rows import MESSAGE_COLUMNS, PINNED, SESSION_COLUMNS, message_from, session_from, session_not_found
from app.db.sql import sql
from app.db.transactions import Statements
from app.domain.ids import RunId, SessionId
from app.turn.ports import LoadedContext

STEP = 64
"""Positions looked at per step backwards: so many rows at most are read for nothing."""

_SESSION_NAMES = tuple(column.strip().removeprefix("s.") for column in SESSION_COLUMNS.split(","))
_PREFIXED = ", ".join(f"s.{name} as of_session_{name}" for name in _SESSION_NAMES)

LOAD_CONTEXT = sql(
    """
    with recursive s as materialized (
        select {session_columns}, 1 as line from sessions s where s.id = :session_id
    ), walk (low, high, tokens) as (
        select s.message_count + 1, s.message_count + 1, cast(0 as bigint) from s
        union all
        select greatest(walk.low - {step}, s.summary_through_position + 1), walk.low, walk.tokens + step.tokens
        from walk cross join s cross join lateral (
            select coalesce(sum(m.token_count), 0) as tokens from messages m
            where m.session_id = :session_id and m.position < walk.low
                and m.position >= greatest(walk.low - {step}, s.summary_through_position + 1)
                and (cast(:run_id as uuid) is null or m.run_id is distinct from :run_id)
        ) step
        where walk.tokens < :max_tokens and walk.low > s.summary_through_position + 1
    ), newest as (
        select {message_columns},
            sum(m.token_count) over (order by m.position desc) - m.token_count as newer_tokens
        from walk cross join lateral (
            select {message_columns} from messages m
            where m.session_id = :session_id and m.position >= walk.low and m.position < walk.high
                and (cast(:run_id as uuid) is null or m.run_id is distinct from :run_id)
            order by m.position desc limit {step}
        ) m
    ), shown as (
        select {message_columns}, {pinned} from newest m where m.newer_tokens < :max_tokens
        union all
        select {message_columns}, {pinned} from messages m
        where m.run_id = cast(:run_id as uuid) and m.session_id = :session_id
    ), numbered as (
        select shown.*, row_number() over (order by shown.position) as line from shown
    )
    select {prefixed}, numbered.* from numbered full join s on s.line = numbered.line order by numbered.position
""",
    session_columns=SESSION_COLUMNS,
    step=str(STEP),
    message_columns=MESSAGE_COLUMNS,
    pinned=PINNED,
    prefixed=_PREFIXED,
)


async def load_context(tx: Statements, session_id: SessionId, run_id: RunId | None, max_tokens: int) -> LoadedContext:
    """Load the session, its newest messages after the cursor and the run's own. Raises NotFound.

    History ends with the message that reaches `max_tokens`, so that even one huge message is there to be shortened.
    Every range of positions is closed and its rows are limited: the planner takes an open range for a third of the
    session and would read all of it. The session's columns stand in one row only, so that its summary is not sent
    once for every message.
    """
    rows = await tx.fetch(LOAD_CONTEXT, session_id=session_id, run_id=run_id, max_tokens=max_tokens)
    if not rows:
        raise session_not_found(session_id)
    return _read(rows, run_id)


def _read(rows: Sequence[RowMapping], run_id: RunId | None) -> LoadedContext:
    session = next(session_from(row, "of_session_") for row in rows if row["of_session_id"] is not None)
    messages = [message_from(row) for row in rows if row["id"] is not None]
    history = tuple(message for message in messages if run_id is None or message.run_id != run_id)
    own = tuple(message for message in messages if run_id is not None and message.run_id == run_id)
    own_after = sum(1 for message in own if message.position > session.summary_through_position)
    after_cursor = session.message_count - session.summary_through_position
    return LoadedContext(session, history, own, is_complete=len(history) + own_after == after_cursor)
