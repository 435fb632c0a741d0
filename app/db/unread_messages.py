"""Messages of runs that were cancelled in the line: nobody read them, and they are kept all the same.

Each gets its place in the history where its turn would have been: behind all turns that were in line before it. Until
then it stands in its run, and the session counts it, so that the end of a turn sees at no cost that some are due.
"""

from sqlalchemy import text

from app.db.append import INSERT_COLUMNS, INSERT_VALUES
from app.db.new_ids import new_id
from app.db.rows import RUN_COLUMNS, message_parameters, run_from
from app.db.sql import sql
from app.db.transactions import Statements
from app.domain.ids import SessionId
from app.domain.run import USER_STEP, Run, user_message

_MARK = text("""
    update runs r set is_unread = true
    where r.id = :run_id and not exists (select 1 from messages m where m.run_id = r.id)
    returning r.id
""")
_COUNT = text("update sessions set unread_run_count = unread_run_count + :more where id = :session_id")
_DUE = sql(
    """
    select {run_columns}, cast(null as uuid) as message_id from runs r
    where r.session_id = :session_id and r.is_unread
        and not exists (select 1 from runs w where w.session_id = r.session_id
            and w.status in ('queued', 'running') and w.seq < r.seq)
    order by r.seq
""",
    run_columns=RUN_COLUMNS,
)
_APPEND = sql(
    """
    with read as (
        update runs set is_unread = false where id = :run_id
    ), seat as (
        update sessions s set message_count = s.message_count + 1, message_tokens = s.message_tokens + :token_count,
            unread_run_count = greatest(s.unread_run_count - 1, 0)
        where s.id = :session_id returning s.id, s.message_count
    )
    insert into messages as m ({insert_columns}) select {insert_values} from seat
""",
    insert_columns=INSERT_COLUMNS,
    insert_values=INSERT_VALUES,
)


async def keep_unread(tx: Statements, run: Run) -> None:
    """Keep the message of a run that was cancelled in the line: now, or when the turns before it have ended.

    Counting it takes the session's lock, which the end of a turn takes too: one of both sees the other.
    """
    marked = await tx.fetch(_MARK, run_id=run.id)
    await tx.fetch(_COUNT, session_id=run.session_id, more=len(marked))
    await append_due(tx, run.session_id)


async def append_due(tx: Statements, session_id: SessionId) -> None:
    """Append the messages whose place in the line has come, in its order; the session's row is locked."""
    for row in await tx.fetch(_DUE, session_id=session_id):
        run = run_from(row)
        await tx.fetch(
            _APPEND,
            session_id=session_id,
            message_id=new_id(),
            run_id=run.id,
            step=USER_STEP,
            **message_parameters(user_message(run)),
        )
