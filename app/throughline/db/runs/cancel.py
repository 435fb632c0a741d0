"""Cancelling runs: a queued or waiting run is cancelled at once, a running one is asked to stop."""

from throughline.db.connection.transactions import Statements
from throughline.db.runs.events import end_event_number, store_events
from throughline.db.runs.finish import append_due, keep_skipped, numbered
from throughline.db.sessions.append import retitle
from throughline.db.statements.rows import MESSAGE_IDS, RUN_COLUMNS, input_json, run_from
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import RunId, UserId
from throughline.domain.events import ending
from throughline.domain.run import Run, RunInput

_CANCEL = sql(
    """
    update runs r set cancel_requested = true,
        status = case when r.status <> 'running' then 'cancelled' else r.status end,
        finished_at = case when r.status <> 'running' then clock_timestamp() end,
        wait = case when r.status = 'running' then r.wait end,
        waits_until = case when r.status = 'running' then r.waits_until end
    where r.id = :run_id and r.owner_id = :owner_id and r.status in ('queued', 'running', 'waiting')
    returning {run_columns}, {message_ids}
""",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)
_TAKE_BACK = sql("""
    update runs r set input = cast(:nothing as json)
    where r.id = :run_id and not exists (select 1 from messages m where m.run_id = r.id)
    returning r.id
""")


async def request_cancel(tx: Statements, owner_id: UserId, run_id: RunId) -> Run | None:
    """Cancel a queued or waiting run and store its last event, or request a running one to stop.

    A queued run's message is kept and appended to the history at the position of its turn. Return the run; None if it
    has ended, is missing or is another owner's.
    """
    run = await _cancel(tx, owner_id, run_id)
    if run is not None and run.status.is_final:
        await keep_skipped(tx, run)
    return run


async def withdraw(tx: Statements, owner_id: UserId, run_id: RunId) -> Run | None:
    """Cancel a queued or waiting run and delete its message's text if no attempt has read it.

    It serves a user who deletes the message before it was read.

    A message that an earlier attempt has already stored in the history stays. A running run is asked to stop and keeps
    its message. Return the run; None if it has ended, is missing or is another owner's.
    """
    run = await _cancel(tx, owner_id, run_id)
    if run is None or not run.status.is_final:
        return run
    if await tx.fetch(_TAKE_BACK, run_id=run.id, nothing=input_json(RunInput(""))):
        await retitle(tx, run.session_id, run.input.content)
    await append_due(tx, run.session_id)
    return run


async def _cancel(tx: Statements, owner_id: UserId, run_id: RunId) -> Run | None:
    rows = await tx.fetch(_CANCEL, run_id=run_id, owner_id=owner_id)
    if not rows:
        return None
    run = run_from(rows[0])
    if run.status.is_final:
        await store_events(tx, run.id, numbered(await end_event_number(tx, run.id), ending(run, None)))
    return run
