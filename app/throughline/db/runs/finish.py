"""Ends of runs by the worker that holds them: answered, failed, cancelled, or waiting for something from outside."""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.runs.events import NEW_EVENTS, as_stored, event_parameters, stored_ending, stored_wait
from throughline.db.sessions.append import INSERT_COLUMNS, INSERT_VALUES, RunMessage, append_messages
from throughline.db.side_jobs import ENQUEUE_SUMMARY
from throughline.db.statements.rows import (
    INSERT_CALLS,
    INSERT_REASONING,
    MESSAGE_COLUMNS,
    MESSAGE_IDS,
    NO_MESSAGE_IDS,
    RUN_COLUMNS,
    USAGE_COLUMNS,
    USER_MESSAGE_ID,
    call_parameters,
    lease_lost,
    message_from,
    message_parameters,
    prefixed,
    reasoning_parameters,
    run_from,
    to_json,
    usage_parameters,
    wait_data,
)
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.events import Event, NewEvent, RunWaiting, ending
from throughline.domain.message import Message, NewMessage, Role, Source
from throughline.domain.run import USER_STEP, Lease, Outcome, Run, RunError, RunStatus, user_message
from throughline.domain.tool import Wait

# Skipped messages: the messages of runs that were cancelled while queued. They are kept in the history.
#
# Each is appended at the position of its turn, after all turns queued before it. Until then its text stays in the run.
# The session counts such messages, so that the end of a turn sees without extra cost whether some are due.

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


ANSWER_STEP = "answer"


def _added(name: str) -> str:
    """Return the new value of a usage column: what the run used until its last wait, and the parameter of that name.

    Unknown values count as 0; the sum is null if both are unknown.
    """
    kind = "numeric" if name == "cost_usd" else "integer"
    given = f"cast(:{name} as {kind})"
    return f"coalesce(r.{name} + {given}, r.{name}, {given})"


_NO_ANSWER = NewMessage(role=Role.ASSISTANT, content="", source=Source.API)

_FINISH = sql(
    """
    with held as materialized (
        select r.id, r.session_id, r.owner_id from runs r
        where r.id = :run_id and r.fence = :fence and r.status = 'running' for no key update
    ), locked as materialized (
        select s.id, s.skipped_run_count from held join sessions s on s.id = held.session_id for no key update of s
    ), ended as (
        update runs r set status = :status, lease_until = null,
            finished_at = case when :status <> 'waiting' then clock_timestamp() end,
            ({usage_columns}) = row({usage_values}), error_type = :error_type,
            error_detail = :error_detail, provider_message = :provider_message,
            context = cast(:context as json), wait = cast(:wait as json), waits_until = :waits_until,
            wait_count = r.wait_count + cast(:status = 'waiting' as integer),
            attempt = case when :status <> 'waiting' then r.attempt else 0 end
        from locked where r.id = :run_id and (locked.skipped_run_count = 0 or not :is_unlocked)
        returning {run_columns}, {user_message_id} as user_message_id
    ), seat as (
        update sessions s set updated_at = now(), message_count = s.message_count + :answers,
            message_tokens = s.message_tokens + :token_count,
            input_tokens = s.input_tokens + coalesce(cast(:input_tokens as integer), 0),
            output_tokens = s.output_tokens + coalesce(cast(:output_tokens as integer), 0)
        from ended where s.id = ended.session_id
        returning s.id, s.message_count
    ), answer as (
        insert into messages as m ({insert_columns}) select {insert_values} from seat where :answers = 1
        returning {message_columns}
    ), notified as (
        insert into run_events (run_id, seq, type, data)
        select ended.id, e.seq, e.type, cast(e.data as json) from ended cross join {events}
        on conflict (run_id, seq) do nothing
    ), reasoned as ({insert_reasoning}), paid as ({insert_calls}), due as (
        select ended.session_id, ended.owner_id from ended where :is_summary_due
    ), prepared as ({enqueue_summary})
    select ended.*, locked.skipped_run_count, answer.id as message_id, {prefixed}, exists (
        select 1 from runs w where w.owner_id = held.owner_id and w.status = 'queued') as has_queued
    from held left join locked on true left join ended on true left join answer on true
""",
    run_columns=RUN_COLUMNS,
    user_message_id=USER_MESSAGE_ID,
    insert_columns=INSERT_COLUMNS,
    insert_values=INSERT_VALUES,
    insert_reasoning=INSERT_REASONING.format(message_id="answer.id", source="answer"),
    message_columns=MESSAGE_COLUMNS,
    events=NEW_EVENTS,
    usage_columns=USAGE_COLUMNS,
    usage_values=", ".join(_added(name) for name in USAGE_COLUMNS.split(", ")),
    insert_calls=INSERT_CALLS.format(payer="ended.owner_id, ended.session_id, ended.id, ended.agent", source="ended"),
    enqueue_summary=ENQUEUE_SUMMARY,
    prefixed=prefixed(MESSAGE_COLUMNS, "answer", "answer_"),
)
_ENDED = sql(
    """
    select {run_columns}, {message_ids} from runs r
    where r.id = :run_id and r.fence = :fence and r.status in ('succeeded', 'failed', 'cancelled', 'waiting')
""",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)
_FAIL = sql("""
    update runs r set status = 'failed', lease_until = null, finished_at = clock_timestamp(),
        error_type = :error_type, error_detail = :error_detail, provider_message = :provider_message, wait = null,
        waits_until = null
    where r.id = :run_id and r.fence = :fence and r.status = 'running'
    returning r.id
""")


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a run that is to be stored: its lease, its outcome, and its last events.

    `unstored` are the turn's events that are not stored yet. The closing events are numbered from `next_seq`.
    """

    lease: Lease
    outcome: Outcome
    unstored: Sequence[NewEvent]
    next_seq: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The ended run, and the events stored with its end.

    `has_queued` says whether its owner may have queued runs, `may_have_job` whether a side job may have been queued.
    """

    run: Run
    events: Sequence[NewEvent]
    has_queued: bool
    may_have_job: bool = True


async def finish_in_one_statement(tx: Statements, end: Ending) -> Finished | None:
    """Store the run's answer or wait, usage, status and last events and the session's totals in one statement.

    Return None, and store nothing, if skipped messages have to be appended after the turn; `finish` does that. If an
    earlier try already stored the end but the database's reply was lost, return that end without events. Raises
    LeaseLost.
    """
    rows = await _write(tx, end, is_unlocked=True)
    if not rows:
        return await _ended_before(tx, end.lease)
    return None if rows[0]["skipped_run_count"] else _read(rows[0], end)


async def finish(tx: Statements, end: Ending) -> Finished:
    """Store the run's end, and append the skipped messages that follow the turn. Raises LeaseLost.

    If an earlier try already stored the end, return that end without events.
    """
    rows = await _write(tx, end, is_unlocked=False)
    if not rows:
        return await _ended_before(tx, end.lease)
    if rows[0]["skipped_run_count"]:
        await append_due(tx, end.lease.session_id)
    return _read(rows[0], end)


async def _write(tx: Statements, end: Ending, *, is_unlocked: bool) -> Sequence[Row]:
    answer_id = None if end.outcome.answer is None else end.outcome.answer.id or MessageId(new_id())
    wait = end.outcome.wait
    last = stored_ending(end.outcome.status, answer_id) if wait is None else (stored_wait(wait),)
    seqs = [*(new.seq for new in end.unstored), *(end.next_seq + index for index in range(len(last)))]
    events = [*(as_stored(new.event) for new in end.unstored), *last]
    return await tx.fetch(
        _FINISH,
        run_id=end.lease.run_id,
        fence=end.lease.fence,
        is_unlocked=is_unlocked,
        message_id=answer_id,
        **_parameters(end.outcome),
        **_wait_parameters(end),
        **event_parameters(seqs, events),
    )


def _read(row: Row, end: Ending) -> Finished:
    run, wait = run_from(row), end.outcome.wait
    last = ending(run, _answer(row)) if wait is None else (RunWaiting(run, wait.message_id),)
    events = (*end.unstored, *numbered(end.next_seq, last))
    return Finished(run, events, has_queued=row["has_queued"], may_have_job=_is_summary_due(end.outcome))


async def _ended_before(tx: Statements, lease: Lease) -> Finished:
    """Return the run's stored end or wait if the holder of this lease wrote it, as the equal fence proves.

    Raises LeaseLost if the run has not ended or another holder ended it.
    """
    rows = await tx.fetch(_ENDED, run_id=lease.run_id, fence=lease.fence)
    if not rows:
        raise lease_lost(lease)
    return Finished(run_from(rows[0]), (), has_queued=True)


async def fail(tx: Statements, lease: Lease, error: RunError) -> None:
    """End the run as failed by changing its own row only, since any other row may block `finish`. Raises LeaseLost."""
    rows = await tx.fetch(_FAIL, run_id=lease.run_id, fence=lease.fence, **_error_parameters(error))
    if not rows:
        raise lease_lost(lease)


def numbered(first_seq: int, events: Sequence[Event]) -> tuple[NewEvent, ...]:
    """Return the events with consecutive sequence numbers, the first of which is `first_seq`."""
    return tuple(NewEvent(first_seq + index, event) for index, event in enumerate(events))


def _is_summary_due(outcome: Outcome) -> bool:
    """Return whether to queue the summary job. After a failed or cancelled turn the job checks itself if one is due."""
    return outcome.is_summary_due or outcome.status is not RunStatus.SUCCEEDED


def _parameters(outcome: Outcome) -> dict[str, object]:
    return {
        "status": outcome.status.value,
        **usage_parameters(outcome.usage),
        **call_parameters(outcome.calls),
        **_error_parameters(outcome.error),
        "context": None if outcome.context is None else to_json(outcome.context),
        "is_summary_due": _is_summary_due(outcome),
        "answers": 0 if outcome.answer is None else 1,
        "step": ANSWER_STEP,
        **message_parameters(outcome.answer or _NO_ANSWER),
        **reasoning_parameters(outcome.answer or _NO_ANSWER),
    }


def _wait_parameters(end: Ending) -> dict[str, object]:
    new = end.outcome.wait
    if new is None:
        return {"wait": None, "waits_until": None}
    wait = Wait(new.calls, new.until, end.lease.fence, new.earlier)
    return {"wait": to_json(wait_data(wait)), "waits_until": new.until}


def _error_parameters(error: RunError | None) -> dict[str, str | None]:
    if error is None:
        return {"error_type": None, "error_detail": None, "provider_message": None}
    said = error.provider_message or None
    return {"error_type": error.type, "error_detail": error.detail, "provider_message": said}


def _answer(row: Row) -> Message | None:
    return None if row["answer_id"] is None else message_from(row, "answer_")
