"""Skipped messages: the messages of runs that were cancelled while queued. They are kept in the history.

Each is appended at the position of its turn, after all turns queued before it. Until then its text stays in the run.
The session counts such messages, so that the end of a turn sees without extra cost whether some are due.
"""

from throughline.db.connection.transactions import Statements
from throughline.db.sessions.append import RunMessage, append_messages
from throughline.db.statements.rows import NO_MESSAGE_IDS, RUN_COLUMNS, run_from
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
    select {run_columns}, {no_message_ids} from (
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
    no_message_ids=NO_MESSAGE_IDS,
)
_READ = sql("""
    with read as (
        update runs r set is_skipped = false where r.id = any(cast(:runs as uuid[])) returning r.id
    )
    update sessions s set skipped_run_count = greatest(s.skipped_run_count - (select count(*) from read), 0)
    where s.id = :session_id
""")


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
        await append_messages(tx, session_id, [RunMessage(user_message(run), run.id, USER_STEP) for run in runs])
        await tx.fetch(_READ, session_id=session_id, runs=[run.id for run in runs])
