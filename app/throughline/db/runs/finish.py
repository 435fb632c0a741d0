"""Ends of runs: answered, failed or cancelled. A queued run is cancelled at once, a running one is asked to stop."""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.db.connection.statement import Row
from throughline.db.connection.transactions import Statements
from throughline.db.jobs.kinds import ENQUEUE_SUMMARY
from throughline.db.runs.event_rows import NEW_EVENTS, as_stored, event_parameters, stored_ending
from throughline.db.runs.events import next_event, store_events
from throughline.db.runs.skipped_messages import append_due, keep_skipped
from throughline.db.sessions.append import INSERT_COLUMNS, INSERT_VALUES
from throughline.db.sessions.titles import retitle
from throughline.db.statements.model_calls import INSERT_CALLS, call_parameters
from throughline.db.statements.new_ids import new_id
from throughline.db.statements.reasoning_rows import INSERT_REASONING, reasoning_parameters
from throughline.db.statements.rows import (
    ANSWER_ID,
    MESSAGE_COLUMNS,
    RUN_COLUMNS,
    USAGE_COLUMNS,
    input_json,
    lease_lost,
    message_from,
    message_parameters,
    prefixed,
    run_from,
    to_json,
    usage_parameters,
)
from throughline.db.statements.sql import sql
from throughline.domain.events import Event, NewEvent, ending
from throughline.domain.ids import MessageId, RunId, UserId
from throughline.domain.message import Message, NewMessage, Role, Source
from throughline.domain.run import Lease, Outcome, Run, RunError, RunInput, RunStatus

ANSWER_STEP = "answer"
_NO_ANSWER = NewMessage(role=Role.ASSISTANT, content="", source=Source.API)

_FINISH = sql(
    """
    with held as materialized (
        select r.id, r.session_id, r.owner_id from runs r
        where r.id = :run_id and r.fence = :fence and r.status = 'running' for no key update
    ), locked as materialized (
        select s.id, s.skipped_run_count from held join sessions s on s.id = held.session_id for no key update of s
    ), ended as (
        update runs r set status = :status, lease_until = null, finished_at = clock_timestamp(),
            ({usage_columns}) = row({usage_values}), error_type = :error_type,
            error_detail = :error_detail, provider_message = :provider_message,
            context = cast(:context as json)
        from locked where r.id = :run_id and (locked.skipped_run_count = 0 or not :is_unlocked)
        returning {run_columns}
    ), seat as (
        update sessions s set updated_at = now(), message_count = s.message_count + :answers,
            message_tokens = s.message_tokens + :token_count,
            input_tokens = s.input_tokens + coalesce(ended.input_tokens, 0),
            output_tokens = s.output_tokens + coalesce(ended.output_tokens, 0)
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
        select 1 from runs w where w.owner_id = held.owner_id and w.status = 'queued') as has_waiting
    from held left join locked on true left join ended on true left join answer on true
""",
    run_columns=RUN_COLUMNS,
    insert_columns=INSERT_COLUMNS,
    insert_values=INSERT_VALUES,
    insert_reasoning=INSERT_REASONING.format(message_id="answer.id", source="answer"),
    message_columns=MESSAGE_COLUMNS,
    events=NEW_EVENTS,
    usage_columns=USAGE_COLUMNS,
    usage_values=", ".join(f":{name}" for name in USAGE_COLUMNS.split(", ")),
    insert_calls=INSERT_CALLS.format(payer="ended.owner_id, ended.session_id, ended.id, ended.agent", source="ended"),
    enqueue_summary=ENQUEUE_SUMMARY,
    prefixed=prefixed(MESSAGE_COLUMNS, "answer", "answer_"),
)
_ENDED = sql(
    """
    select {run_columns}, {answer_id} from runs r
    where r.id = :run_id and r.fence = :fence and r.status in ('succeeded', 'failed', 'cancelled')
""",
    run_columns=RUN_COLUMNS,
    answer_id=ANSWER_ID,
)
_FAIL = sql("""
    update runs r set status = 'failed', lease_until = null, finished_at = clock_timestamp(),
        error_type = :error_type, error_detail = :error_detail, provider_message = :provider_message
    where r.id = :run_id and r.fence = :fence and r.status = 'running'
    returning r.id
""")
_CANCEL = sql(
    """
    update runs r set cancel_requested = true, status = case r.status when 'queued' then 'cancelled' else r.status end,
        finished_at = case r.status when 'queued' then clock_timestamp() end
    where r.id = :run_id and r.owner_id = :owner_id and r.status in ('queued', 'running')
    returning {run_columns}, cast(null as uuid) as message_id
""",
    run_columns=RUN_COLUMNS,
)
_TAKE_BACK = sql("""
    update runs r set input = cast(:nothing as json)
    where r.id = :run_id and not exists (select 1 from messages m where m.run_id = r.id)
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
    """The ended run, the events stored with its end, and whether its owner may have queued runs."""

    run: Run
    events: Sequence[NewEvent]
    has_waiting: bool


async def finish_in_one_statement(tx: Statements, end: Ending) -> Finished | None:
    """Store the run's answer, usage, status and last events and the session's totals in one statement.

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
    answer_id = None if end.outcome.answer is None else MessageId(new_id())
    last = stored_ending(end.outcome.status, answer_id)
    seqs = [*(new.seq for new in end.unstored), *(end.next_seq + index for index in range(len(last)))]
    events = [*(as_stored(new.event) for new in end.unstored), *last]
    return await tx.fetch(
        _FINISH,
        run_id=end.lease.run_id,
        fence=end.lease.fence,
        is_unlocked=is_unlocked,
        message_id=answer_id,
        **_parameters(end.outcome),
        **event_parameters(seqs, events),
    )


def _read(row: Row, end: Ending) -> Finished:
    run = run_from(row)
    events = (*end.unstored, *_numbered(end.next_seq, ending(run, _answer(row))))
    return Finished(run, events, has_waiting=row["has_waiting"])


async def _ended_before(tx: Statements, lease: Lease) -> Finished:
    """Return the run's stored end if the holder of this lease wrote it, as the equal fence proves.

    Raises LeaseLost if the run has not ended or another holder ended it.
    """
    rows = await tx.fetch(_ENDED, run_id=lease.run_id, fence=lease.fence)
    if not rows:
        raise lease_lost(lease)
    return Finished(run_from(rows[0]), (), has_waiting=True)


async def fail(tx: Statements, lease: Lease, error: RunError) -> None:
    """End the run as failed by changing its own row only, since any other row may block `finish`. Raises LeaseLost."""
    rows = await tx.fetch(_FAIL, run_id=lease.run_id, fence=lease.fence, **_error_parameters(error))
    if not rows:
        raise lease_lost(lease)


async def request_cancel(tx: Statements, owner_id: UserId, run_id: RunId) -> Run | None:
    """Cancel a queued run and store its last event, or request a running one to stop.

    A queued run's message is kept and appended to the history at the position of its turn. Return the run; None if it
    has ended, is missing or is another owner's.
    """
    run = await _cancel(tx, owner_id, run_id)
    if run is not None and run.status.is_final:
        await keep_skipped(tx, run)
    return run


async def withdraw(tx: Statements, owner_id: UserId, run_id: RunId) -> Run | None:
    """Cancel a queued run and delete its message's text, for a user who deletes the message before it was read.

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
        await store_events(tx, run.id, _numbered(await next_event(tx, run.id), ending(run, None)))
    return run


def _numbered(first_seq: int, events: Sequence[Event]) -> tuple[NewEvent, ...]:
    return tuple(NewEvent(first_seq + index, event) for index, event in enumerate(events))


def _parameters(outcome: Outcome) -> dict[str, object]:
    return {
        "status": outcome.status.value,
        **usage_parameters(outcome.usage),
        **call_parameters(outcome.calls),
        **_error_parameters(outcome.error),
        "context": None if outcome.context is None else to_json(outcome.context),
        # After a failed or cancelled turn the job itself checks whether a summary is due.
        "is_summary_due": outcome.is_summary_due or outcome.status is not RunStatus.SUCCEEDED,
        "answers": 0 if outcome.answer is None else 1,
        "step": ANSWER_STEP,
        **message_parameters(outcome.answer or _NO_ANSWER),
        **reasoning_parameters(outcome.answer or _NO_ANSWER),
    }


def _error_parameters(error: RunError | None) -> dict[str, str | None]:
    if error is None:
        return {"error_type": None, "error_detail": None, "provider_message": None}
    said = error.provider_message or None
    return {"error_type": error.type, "error_detail": error.detail, "provider_message": said}


def _answer(row: Row) -> Message | None:
    return None if row["answer_id"] is None else message_from(row, "answer_")
