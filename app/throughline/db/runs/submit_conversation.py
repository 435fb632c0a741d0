"""Submission of a message together with the conversation before it, in one transaction.

For requests that bring their conversation themselves: a new session, earlier messages, and steps of the turn that were
taken elsewhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.runs import submit as run_submit
from throughline.db.runs.submit import NewRun, session_waiting
from throughline.db.sessions.append import RunMessage, append_messages
from throughline.db.sessions.copies import CopyingSessions, copy_messages, keep_history, link_repeated
from throughline.db.sessions.create import CreateOutcome, create_session
from throughline.db.statements.rows import session_not_found
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import RunId, SessionId
from throughline.domain.errors import SessionBusy
from throughline.domain.message import NewMessage, Role
from throughline.domain.run import USER_STEP, Opening, Run, Submission, Submitted, user_message
from throughline.domain.session import NewSession, Session

_LOCK = sql("""
    select s.id, (select r.id from runs r where r.session_id = s.id and r.status in ('queued', 'running', 'waiting')
        order by r.seq limit 1) as busy_with,
        (select r.id from runs r where r.session_id = s.id and r.status = 'waiting') as waiting_id,
        exists (select 1 from runs r where r.id = :run_id) as is_stored
    from sessions s where s.id = :session_id and s.owner_id = :owner_id for no key update
""")


_KEYED = sql("""
    select r.id from runs r where r.owner_id = :owner_id and r.idempotency_key = :idempotency_key
""")
_RELEASE = sql("""
    update sessions s set external_id = null, updated_at = now()
    where s.id = :session_id and s.owner_id = :owner_id and s.external_id = :external_id
""")


async def submit_conversation(tx: Statements, new: NewRun, opening: Opening) -> Submitted:
    """Store the opening and the submission, and claim the run as `submit` does.

    The session of copied messages is a new one.

    A repeated call finds the run stored and adds nothing. If an idempotency key has created another session before, the
    run of that request is returned.

    Raises what `submit` raises, and SessionBusy for earlier messages of a session that has an unfinished turn, or that
    another request has created at the same time.
    """
    outcome = None
    if opening.copied is not None or opening.replaces is not None:
        await keep_history(tx, new.submission.owner_id)
    if opening.session is not None:
        session, outcome = await _create(tx, opening.session, opening.replaces)
        new = replace(new, submission=replace(new.submission, session_id=session.id))
    has_earlier = opening.history or opening.copied is not None or opening.replaces is not None
    if outcome is CreateOutcome.CREATED and not has_earlier and not opening.steps:
        at_once = await run_submit.submit_in_one_statement(tx, new)  # nobody else knows the session yet
        if at_once is not None:
            return at_once
    submission = new.submission
    locked = await tx.fetch(_LOCK, session_id=submission.session_id, owner_id=submission.owner_id, run_id=new.run_id)
    if not locked:
        raise session_not_found(submission.session_id)
    if has_earlier and not locked[0]["is_stored"] and await _is_new(tx, new):
        _check_free(locked[0], submission, outcome)
        await _append_earlier(tx, new, opening)
    submitted, _ = await run_submit.submit(tx, new)
    if not locked[0]["is_stored"] and not submitted.replayed:
        await _append_own(tx, submitted.run, opening, opening.replaces if outcome is CreateOutcome.CREATED else None)
    return submitted


async def _create(tx: Statements, new: NewSession, replaces: SessionId | None) -> tuple[Session, CreateOutcome]:
    """Create the session, or find it. The session `replaces` loses its external id first, if that is the new one's.

    Of several calls at the same time one takes the external id over; the others find its session.
    """
    if replaces is not None:
        await tx.fetch(_RELEASE, session_id=replaces, owner_id=new.owner_id, external_id=new.external_id)
    return await create_session(tx, new)


def _check_free(session: Row, submission: Submission, outcome: CreateOutcome | None) -> None:
    """Raise an error if no earlier messages can be stored in the session.

    SessionWaiting: a turn waits and the submission refuses that. SessionBusy: a turn is unfinished, or another request
    created the session.
    """
    if submission.refuses_waiting and session["waiting_id"] is not None:
        raise session_waiting(RunId(session["waiting_id"]))
    if session["busy_with"] is not None or outcome is CreateOutcome.FOUND:
        raise SessionBusy(
            f"Another request has begun a turn of session {submission.session_id}, so nothing can be put before "
            "it. Send this request again when the turn has ended.",
            run_id=str(session["busy_with"] or ""),
        )


async def _append_earlier(tx: Statements, new: NewRun, opening: Opening) -> None:
    """Store copies and messages before the submitted one. Raises NotFound if the originals of copies are gone."""
    submission = new.submission
    if opening.copied is not None:
        await copy_messages(tx, submission.owner_id, submission.session_id, opening.copied)
    await append_messages(tx, submission.session_id, [RunMessage(message) for message in opening.history])


async def _append_own(tx: Statements, run: Run, opening: Opening, branched_from: SessionId | None) -> None:
    """Store the submitted message and the tool steps that came with it, if there are steps or the session is a branch.

    In a branch all messages, the submitted one too, are linked to those with the same text in the original session.
    """
    if not opening.steps and branched_from is None:
        return
    first = RunMessage(user_message(run), run.id, USER_STEP)
    await append_messages(tx, run.session_id, [first, *_steps(run.id, opening.steps)])
    if branched_from is not None:
        sessions = CopyingSessions(run.owner_id, run.session_id, branched_from)
        await link_repeated(tx, sessions, [*opening.history, first.message, *opening.steps])


async def _is_new(tx: Statements, new: NewRun) -> bool:
    """Return whether no run has the submission's idempotency key yet."""
    return new.submission.idempotency_key is None or not await tx.fetch(
        _KEYED, owner_id=new.submission.owner_id, idempotency_key=new.submission.idempotency_key
    )


def _steps(run_id: RunId, messages: Sequence[NewMessage]) -> Iterator[RunMessage]:
    """Yield the run's messages under the names that the turn itself would give them.

    `assistant:N` is the step with tool calls number N, `tool:N:I` the result of its call number I, both from 0.
    """
    number, places = -1, dict[str, int]()
    for message in messages:
        if message.role is Role.ASSISTANT:
            number += 1
            places = {call.id: index for index, call in enumerate(message.tool_calls)}
            yield RunMessage(message, run_id, f"assistant:{number}")
        else:
            yield RunMessage(message, run_id, f"tool:{number}:{places[message.tool_call_id or '']}")
