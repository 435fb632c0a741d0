"""Submission of a message: the run's row, its position in the queue and its idempotency key, in one transaction.

One statement is enough in the usual case (`submit_in_one_statement`), else several run under the session's lock
(`submit`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.runs.cancel import request_cancel
from throughline.db.runs.finish import append_due
from throughline.db.sessions.append import title_of
from throughline.db.statements.rows import (
    MESSAGE_IDS,
    NO_MESSAGE_IDS,
    RUN_COLUMNS,
    input_json,
    run_from,
    session_not_found,
)
from throughline.db.statements.sql import check_key, key_reused, new_id, sql
from throughline.domain.basic_types import RunId
from throughline.domain.errors import InvalidInput, OwnerQueueFull, QueueFull, SessionBusy, SessionWaiting
from throughline.domain.run import Caps, ClaimedRun, Claimer, Lease, OnBusy, RunStatus, Submission, Submitted

_INTERRUPT = sql("""
    update runs r set cancel_requested = true from sessions s
    where r.session_id = :session_id and r.status = 'running' and s.id = r.session_id and s.owner_id = :owner_id
        and not exists (select 1 from runs k
            where k.id = :run_id or (k.owner_id = :owner_id and k.idempotency_key = :idempotency_key))
    returning r.id
""")
_WAITING = sql("""
    select r.id from runs r
    where r.session_id = :session_id and r.owner_id = :owner_id and r.status = 'waiting'
        and not exists (select 1 from runs k
            where k.id = :run_id or (k.owner_id = :owner_id and k.idempotency_key = :idempotency_key))
""")
_LOCK_SESSION = sql("""
    select s.skipped_run_count from sessions s
    where s.id = :session_id and s.owner_id = :owner_id for no key update
""")
_SUBMIT = sql(
    """
    with locked as materialized (
        select s.id, s.agent, s.title, s.archived, s.skipped_run_count from sessions s
        where s.id = :session_id and s.owner_id = :owner_id for no key update skip locked
    ), earlier as (
        select {run_columns}, {message_ids}, r.fingerprint, r.worker from runs r
        where r.id = :run_id or (r.owner_id = :owner_id and r.idempotency_key = :idempotency_key)
    ), line as (
        select l.queued, l.first_id from locked cross join lateral session_line(locked.id) l
    ), owner as (
        select (select count(*) from runs w where w.owner_id = :owner_id and w.status = 'running') as owner_running,
            (select count(*) from runs w where w.owner_id = :owner_id and w.status = 'queued') as owner_queued
    ), way as (
        select line.*, owner.owner_queued, locked.agent, locked.title, locked.archived, locked.skipped_run_count,
            greatest(:max_queued - locked.skipped_run_count, 0) as max_queued,
            line.first_id is null and locked.skipped_run_count > 0 as must_append,
            case when :refuses_waiting then (
                select w.id from runs w where w.session_id = locked.id and w.status = 'waiting') end as waiting_id,
            line.first_id is null and cast(:worker as text) is not null
            and owner.owner_running < :max_running_of_owner
            and not exists (select 1 from runs w where w.owner_id = :owner_id and w.status = 'queued'
                and not exists (select 1 from runs e where e.session_id = w.session_id and e.status = 'running'))
            as is_claimed
        from locked cross join line cross join owner
    ), written as (
        insert into runs as r (id, session_id, owner_id, agent, input, source, author, actor, idempotency_key,
            fingerprint, status, worker, lease_until, fence, attempt, started_at)
        select :run_id, :session_id, :owner_id, coalesce(cast(:agent as text), way.agent), cast(:input as json),
            :source, :author, :actor, :idempotency_key, :fingerprint,
            case when is_claimed then 'running' else 'queued' end, case when is_claimed then :worker end,
            case when is_claimed then now() + make_interval(secs => :lease_seconds) end,
            cast(is_claimed as integer), cast(is_claimed as integer), case when is_claimed then now() end
        from way
        where not exists (select 1 from earlier)
            and not way.archived and not way.must_append and way.waiting_id is null
            and case when :rejects then way.first_id is null else way.queued < way.max_queued end
            and (way.is_claimed or way.owner_queued < :max_queued_of_owner)
        returning {run_columns}, {no_message_ids}, r.fingerprint, r.worker
    ), changed as (
        update sessions s set agent = written.agent, updated_at = now(),
            title = case when way.title = '' then :title else way.title end
        from way, written
        where s.id = written.session_id and (written.agent <> way.agent or (way.title = '' and :title <> ''))
    ), result as (
        select true as is_new, written.* from written union all select false, earlier.* from earlier
    )
    select way.queued, way.first_id, way.owner_queued, way.archived, way.waiting_id, way.skipped_run_count, result.*
    from way left join result on true
""",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
    no_message_ids=NO_MESSAGE_IDS,
)


@dataclass(frozen=True, slots=True)
class NewRun:
    """A submission, the id made for its run, the worker that may claim it at once, and the queue limits."""

    submission: Submission
    run_id: RunId
    claimer: Claimer | None
    caps: Caps


async def submit_in_one_statement(tx: Statements, new: NewRun) -> Submitted | None:
    """Store the submission in one statement; None, with nothing stored, if that is not possible and `submit` is needed.

    A statement sees only rows committed before it began. So the queue is read by an SQL function, which sees rows
    committed before the session was locked. An idempotency key inserted concurrently raises a conflict, and the
    statement is retried.
    """
    if new.submission.on_busy is OnBusy.INTERRUPT:
        return None
    rows = await _store(tx, new)
    return _read(rows[0], new) if rows and rows[0]["is_new"] else None


async def submit(tx: Statements, new: NewRun) -> tuple[Submitted, RunId | None]:
    """Store the submission under the session's lock; return it and the run that it interrupted, None without one.

    A running run is asked to stop, a waiting one is cancelled.

    The run is claimed at once if no other queued run of its owner could be claimed. An owner's oldest run comes first,
    as in `claim_runs`. The session's lock makes queue positions and the queue's length exact. A running run is
    asked to stop before that lock is taken, because runs are always locked before their sessions. A retry after a lost
    reply of the database finds the run by its id.

    Raises NotFound, InvalidInput (archived), IdempotencyKeyReused, SessionBusy (also SessionWaiting), QueueFull (also
    OwnerQueueFull).
    """
    submission = new.submission
    stopped = await _interrupt(tx, new) if submission.on_busy is OnBusy.INTERRUPT else None
    session = await tx.fetch(_LOCK_SESSION, session_id=submission.session_id, owner_id=submission.owner_id)
    if not session:
        raise session_not_found(submission.session_id)
    if session[0]["skipped_run_count"]:  # left over if the last turn ended by `fail`, which appends none
        await append_due(tx, submission.session_id)
    row = (await _store(tx, new))[0]
    if row["is_new"] is None:
        raise _refusal(row, new)
    return _read(row, new), stopped


async def _interrupt(tx: Statements, new: NewRun) -> RunId | None:
    """Ask the session's running run to stop, or cancel its waiting run; return the run, None if it has neither.

    Nothing is interrupted if the submission is a repeated one.
    """
    running = await tx.fetch(_INTERRUPT, **_identity(new))
    if running:
        return RunId(running[0]["id"])
    for row in await tx.fetch(_WAITING, **_identity(new)):
        cancelled = await request_cancel(tx, new.submission.owner_id, RunId(row["id"]))
        return None if cancelled is None else cancelled.id
    return None


async def _store(tx: Statements, new: NewRun) -> Sequence[Row]:
    return await tx.fetch(
        _SUBMIT,
        **_identity(new),
        **_parameters(new),
        max_queued=new.caps.queued_per_session,
        max_queued_of_owner=new.caps.queued_per_owner,
        max_running_of_owner=new.caps.running_per_owner,
    )


def _identity(new: NewRun) -> dict[str, object]:
    """Return the statement parameters that name run, session and owner, and by which a repeat finds the stored run."""
    submission = new.submission
    return {
        "run_id": new.run_id,
        "session_id": submission.session_id,
        "owner_id": submission.owner_id,
        "idempotency_key": check_key(submission.idempotency_key),
    }


def _parameters(new: NewRun) -> dict[str, object]:
    submission, claimer = new.submission, new.claimer
    return {
        "input": input_json(submission.input),
        "source": submission.source.value,
        "author": submission.author,
        "actor": submission.actor,
        "fingerprint": submission.fingerprint,
        "title": title_of(submission.input.content),
        "rejects": submission.on_busy is OnBusy.REJECT,
        "refuses_waiting": submission.refuses_waiting,
        "agent": submission.agent,
        "worker": None if claimer is None else claimer.worker,
        "lease_seconds": 0 if claimer is None else claimer.lease_seconds,
    }


def _read(row: Row, new: NewRun) -> Submitted:
    run, submission, claimer = run_from(row), new.submission, new.claimer
    if not row["is_new"] and run.id != new.run_id:
        if run.session_id != submission.session_id or row["fingerprint"] != submission.fingerprint:
            raise key_reused(submission.idempotency_key)
        return Submitted(run, replayed=True)
    if claimer is None or not _is_ours(row, claimer):
        return Submitted(run)
    lease = Lease(run.id, row["fence"], run.session_id)
    return Submitted(run, claimed=ClaimedRun(run=run, lease=lease))


def _is_ours(row: Row, claimer: Claimer) -> bool:
    """Whether this submission claimed the run itself, which is always the first claim."""
    return (row["status"], row["fence"], row["worker"]) == (RunStatus.RUNNING.value, 1, claimer.worker)


def _refusal(row: Row, new: NewRun) -> InvalidInput | SessionBusy | QueueFull:
    submission, caps = new.submission, new.caps
    if row["archived"]:  # messages accepted before are still answered
        return InvalidInput(
            f"Session {submission.session_id} is archived. Set `archived` to false before sending messages to it."
        )
    if row["waiting_id"] is not None:
        return session_waiting(RunId(row["waiting_id"]))
    if submission.on_busy is OnBusy.REJECT and row["first_id"] is not None:
        return SessionBusy(
            f"The session's turn {row['first_id']} is not finished. Wait for it, cancel it, or send with `on_busy` "
            "`enqueue` or `interrupt`.",
            run_id=str(row["first_id"]),
        )
    waiting = row["queued"] + row["skipped_run_count"]
    if waiting >= caps.queued_per_session:
        return QueueFull(
            f"Session {submission.session_id} has {waiting} messages waiting, and that is the most there may be "
            "(MAX_QUEUED_PER_SESSION). Send this one again when some are answered, or cancel some.",
            cap="max_queued_per_session",
            limit=caps.queued_per_session,
        )
    return OwnerQueueFull(
        f"You have {row['owner_queued']} messages waiting in all your sessions, and {caps.queued_per_owner} is the "
        "most there may be (MAX_QUEUED_PER_OWNER). Send this one again when some are answered, or cancel some.",
        cap="max_queued_per_owner",
        limit=caps.queued_per_owner,
    )


def session_waiting(run_id: RunId) -> SessionWaiting:
    """Return the error for a message that is refused because the run waits for something else."""
    return SessionWaiting(
        f"The session's turn {run_id} waits for results or answers. Give them first, or cancel it.", run_id=str(run_id)
    )


def new_run_id() -> RunId:
    """Return an id for a run to be submitted."""
    return RunId(new_id())
