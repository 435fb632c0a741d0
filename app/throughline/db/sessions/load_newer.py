"""Loading of a session for a turn if this process has cached its older message rows: only newer rows are read."""

from collections.abc import Sequence

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.sessions.load_context import (
    SUMMARY_PIECES,
    Found,
    Wanted,
    adopted_from,
    choose_rows,
    load_context,
    prepared_from,
)
from throughline.db.sessions.message_cache import CachedMessages, MessageCache, cacheable_rows, extend_cached
from throughline.db.statements.rows import (
    MESSAGE_COLUMNS,
    SESSION_COLUMNS,
    message_from,
    prefixed,
    session_from,
    session_not_found,
)
from throughline.db.statements.sql import sql
from throughline.domain.conversation import Conversation
from throughline.domain.ids import MessageId

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
    prefixed=prefixed(SESSION_COLUMNS, "s", "of_session_"),
    **SUMMARY_PIECES,
    most_new=str(MOST_NEW),
)
"""Statement that reads the rows after the cached ones, if the cached ones are valid (`is_known`).

They are valid if the redaction count and the newest row's id are unchanged.
After a database restore, or for a session stored again under the same id, that position has another row.
"""


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


def _read(rows: Sequence[Row], kept: CachedMessages) -> Found | None:
    first = next(row for row in rows if row["of_session_id"] is not None)
    if not first["of_session_is_known"]:
        return None
    messages = [message_from(row) for row in rows if row["id"] is not None]
    return Found(
        session=session_from(first, "of_session_"),
        rows=(*kept.rows, *(message for message in messages if message.position > kept.last.position)),
        early=tuple(message for message in messages if message.position < kept.first),
        pins={MessageId(message_id) for message_id in first["of_session_pins"]},
        prepared=prepared_from(first),
        adopted=adopted_from(first),
    )
