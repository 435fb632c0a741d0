"""Resuming waiting runs: what their calls were given from outside is stored, and the run is queued again.

Once all calls of a wait were given something, or the wait has expired, a worker continues the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from throughline.db.connection.transactions import Statements
from throughline.db.statements.rows import (
    MESSAGE_COLUMNS,
    MESSAGE_IDS,
    RUN_COLUMNS,
    input_json,
    message_from,
    run_from,
    run_not_found,
    to_json,
    wait_data,
)
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import RunId, UserId
from throughline.domain.elicitation import call_of_question
from throughline.domain.errors import RunNotWaiting
from throughline.domain.run import Run, RunInput, RunStatus
from throughline.domain.tool import Resolution, matches_result, resolve

MOST_EXPIRED = 1_000
"""Runs that one statement queues again because their wait has expired."""

_LOCK = sql(
    """
    select {run_columns}, {message_ids},
        coalesce((select max(e.seq) from run_events e where e.run_id = r.id), 0) as last_seq
    from runs r
    where r.id = :run_id and r.owner_id = :owner_id for no key update of r
""",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)
_STORE = sql(
    """
    update runs r set wait = cast(:wait as json), input = coalesce(cast(:input as json), r.input),
        status = case when :is_complete then 'queued' else r.status end
    where r.id = :run_id
    returning {run_columns}, {message_ids},
        coalesce((select max(e.seq) from run_events e where e.run_id = r.id), 0) as last_seq
""",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)
_EXPIRE = sql("""
    update runs r set status = 'queued'
    from (
        select w.id from runs w where w.status = 'waiting' and w.waits_until <= :now
        order by w.waits_until limit :most for no key update skip locked
    ) expired
    where r.id = expired.id
    returning r.id
""")


_RESULTS = sql(
    """
    select {message_columns} from messages m
    where m.run_id = :run_id and m.role = 'tool' and m.tool_call_id = any(cast(:call_ids as text[]))
""",
    message_columns=MESSAGE_COLUMNS,
)


@dataclass(frozen=True, slots=True)
class Resumed:
    """The run after it was given something, and the number of its newest event until then; 0 without stored events.

    `is_repeated`: it was given the same before.
    """

    run: Run
    last_seq: int
    is_repeated: bool = False


async def resume(
    tx: Statements, owner_id: UserId, run_id: RunId, given: Sequence[Resolution], changed: RunInput | None = None
) -> Resumed:
    """Store what waiting calls were given, and queue the run once no call of its wait is open.

    `changed` replaces the run's input, for requests that name overrides and tools again; its message is the same.

    A repetition of what was given before changes nothing, also after the end of the run.

    Raises NotFound, InvalidInput (a call does not wait, or for something else), RunNotWaiting (the run does not wait,
    or the call was given something else).
    """
    rows = await tx.fetch(_LOCK, run_id=run_id, owner_id=owner_id)
    if not rows:
        raise run_not_found(run_id)
    run = run_from(rows[0])
    open_wait = run.wait if run.status is RunStatus.WAITING else None
    is_for_it = open_wait is not None and open_wait.has_any_call(given)
    if not is_for_it and await _is_repetition(tx, run, given):
        return Resumed(run, rows[0]["last_seq"], is_repeated=True)
    if open_wait is None:
        raise _not_waiting(run)
    wait = resolve(open_wait, given)
    stored = await tx.fetch(
        _STORE,
        run_id=run_id,
        wait=to_json(wait_data(wait)),
        is_complete=not wait.open_calls,
        input=None if changed is None else input_json(changed),
    )
    return Resumed(run_from(stored[0]), stored[0]["last_seq"])


async def expire_waits(tx: Statements, now: datetime) -> tuple[RunId, ...]:
    """Queue the runs whose wait has expired at `now`, up to MOST_EXPIRED; return them.

    Their open calls get an error result when the run continues.
    """
    return tuple(RunId(row["id"]) for row in await tx.fetch(_EXPIRE, now=now, most=MOST_EXPIRED))


async def _is_repetition(tx: Statements, run: Run, given: Sequence[Resolution]) -> bool:
    """Return whether the run was given all of this before: its last wait has it all, or stored results have."""
    if run.wait is not None and all(run.wait.resolution_for(one.call_id) == one for one in given):
        return True
    ids = {named for one in given for named in (one.call_id, call_of_question(one.call_id))}
    rows = await tx.fetch(_RESULTS, run_id=run.id, call_ids=list(ids))
    results = [message_from(row) for row in rows]
    return all(any(matches_result(one, result) for result in results) for one in given)


def _not_waiting(run: Run) -> RunNotWaiting:
    return RunNotWaiting(
        f"The run {run.id} is {run.status}, so it takes nothing from outside. Read it with GET /v1/runs/{run.id}."
    )
