"""Skipped messages: the messages of runs that were cancelled while queued. They are kept in the history.

Each is appended at the position of its turn, after all turns queued before it. Until then its text stays in the run.
The session counts such messages, so that the end of a turn sees without extra cost whether some are due.
"""

import json

from throughline.db.connection.transactions import Statements
from throughline.db.sessions.append import INSERT_COLUMNS
from throughline.db.statements.new_ids import new_id
from throughline.db.statements.rows import RUN_COLUMNS, message_parameters, run_from
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId
from throughline.domain.run import USER_STEP, Run, user_message

PORTION = 100
PORTION_BYTES = 4_000_000
"""Limits of one statement that appends skipped messages: PORTION messages, and this many bytes.

A single message may be larger. A statement with 200 MB exceeds the time limit; one with 4 MB takes a third of a second.
"""

_MARK = sql("""
    update runs r set is_skipped = true
    where r.id = :run_id and not exists (select 1 from messages m where m.run_id = r.id)
    returning r.id
""")
_COUNT = sql("update sessions set skipped_run_count = skipped_run_count + :more where id = :session_id")
_DUE = sql(
    """
    select {run_columns}, cast(null as uuid) as message_id from (
        select r.*, sum(octet_length(cast(r.input as text))) over (
            order by r.seq rows between unbounded preceding and 1 preceding) as bytes_before
        from runs r
        where r.session_id = :session_id and r.is_skipped
            and not exists (select 1 from runs w where w.session_id = r.session_id
                and w.status in ('queued', 'running', 'waiting') and w.seq < r.seq)
        order by r.seq limit :portion
    ) r
    where coalesce(r.bytes_before, 0) < :portion_bytes
    order by r.seq
""",
    run_columns=RUN_COLUMNS,
)
_APPEND = sql(
    """
    with due as (
        select * from rows from (json_to_recordset(cast(:messages as json)) as (
            message_id uuid, run_id uuid, role text, content text, content_blocks text, source text, tool_calls text,
            tool_call_id text, name text, author text, token_count integer, counter text, metadata text
        )) with ordinality as d (message_id, run_id, role, content, content_blocks, source, tool_calls, tool_call_id,
            name, author, token_count, counter, metadata, place)
    ), read as (
        update runs r set is_skipped = false from due where r.id = due.run_id
    ), total as (
        select count(*) as messages, sum(token_count) as tokens from due
    ), seat as (
        update sessions s set message_count = s.message_count + total.messages,
            message_tokens = s.message_tokens + total.tokens,
            skipped_run_count = greatest(s.skipped_run_count - total.messages, 0)
        from total where s.id = :session_id returning s.id, s.message_count - total.messages as last_position
    )
    insert into messages as m ({insert_columns})
    select due.message_id, seat.id, seat.last_position + due.place, due.run_id, :step, due.role, due.content,
        cast(due.content_blocks as json), due.source, cast(due.tool_calls as jsonb), due.tool_call_id, due.name,
        due.author, due.token_count, due.counter, cast(due.metadata as jsonb)
    from seat cross join due order by due.place
""",
    insert_columns=INSERT_COLUMNS,
)


async def keep_skipped(tx: Statements, run: Run) -> None:
    """Keep the message of a run that was cancelled while queued; append it now, or at the end of the turns before it.

    Counting it takes the session's lock, as the end of a turn does, so one of the two sees the other.
    """
    marked = await tx.fetch(_MARK, run_id=run.id)
    await tx.fetch(_COUNT, session_id=run.session_id, more=len(marked))
    await append_due(tx, run.session_id)


async def append_due(tx: Statements, session_id: SessionId) -> None:
    """Append the session's skipped messages that no earlier turn precedes; the caller has locked the session's row.

    All are appended in this transaction, because the next turn's message follows them. Each statement appends one
    portion.
    """
    bounds = {"portion": PORTION, "portion_bytes": PORTION_BYTES}
    while runs := [run_from(row) for row in await tx.fetch(_DUE, session_id=session_id, **bounds)]:
        written = json.dumps([_message_of(run) for run in runs], ensure_ascii=False)
        await tx.fetch(_APPEND, session_id=session_id, step=USER_STEP, messages=written)


def _message_of(run: Run) -> dict[str, object]:
    return {"message_id": str(new_id()), "run_id": str(run.id), **message_parameters(user_message(run))}
