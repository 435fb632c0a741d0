"""A session as a request continues it: with its waiting turn, and with what the user has said in it.

The user's texts are messages, also those that wait for their turn, and answers to questions of the model
and of tools' servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.statements.rows import (
    MESSAGE_IDS,
    MESSAGE_TEXT,
    RUN_COLUMNS,
    SESSION_COLUMNS,
    run_from,
    session_from,
    session_not_found,
)
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import JsonValue, RunId, SessionId, UserId
from throughline.domain.elicitation import MAX_QUESTIONS
from throughline.domain.message import CLIENT_MESSAGE_ID, CLIENT_PROTOCOL, REDACTED_TEXT, text_of
from throughline.domain.run import Run, RunStatus
from throughline.domain.session import Session
from throughline.domain.tool import OUTSIDE, WaitKind

_STORED = """
    coalesce((select json_agg(t) from (
        select m.run_id, m.tool_call_id || coalesce(':' || q.number, '') as tool_call_id,
            case when q.number is null then {text} else q.answer end as text,
            m.metadata ->> :client_id as client_id, m.metadata ->> :protocol as protocol,
            m.position
        from messages m left join lateral (
            select n.number, coalesce(m.metadata #>> array['questions', cast(n.number - 1 as text), 'answer'],
                case when m.metadata ? 'redacted' then :redacted end) as answer
            from generate_series(1, case when jsonb_typeof(m.metadata -> 'waits') = 'number'
                then cast(least(cast(m.metadata ->> 'waits' as numeric), {most}) as integer) end) as n (number)
        ) q on m.role = 'tool'
        where m.session_id = s.id and (m.role = 'user' or (m.role = 'tool' and
            (m.metadata ->> :outside = :answer or q.answer is not null)))
        order by m.position desc, q.number desc limit :limit
    ) t), '[]') as stored"""
_HAS_UNSTORED = """
    exists (select 1 from runs r where r.session_id = s.id
        and (r.status in ('queued', 'running', 'waiting') or r.is_skipped)) as has_unstored"""
_BY_ID, _BY_EXTERNAL_ID = (
    sql(
        """
        select {session_columns}, {has_unstored}, {stored} from sessions s
        where s.owner_id = :owner_id and {condition}
""",
        session_columns=SESSION_COLUMNS,
        has_unstored=_HAS_UNSTORED,
        stored=_STORED.format(text=MESSAGE_TEXT, most=MAX_QUESTIONS),
        condition=condition,
    )
    for condition in ("s.id = :session_id", "s.external_id = :external_id and s.expires_at is null")
)
_STORED_SINCE = sql(
    "select {stored} from sessions s where s.id = :session_id",
    stored=_STORED.format(text=MESSAGE_TEXT, most=MAX_QUESTIONS),
)
_UNSTORED = sql(
    """
    select {run_columns}, {message_ids} from runs r
    where r.session_id = :session_id and (r.status in ('queued', 'running', 'waiting') or r.is_skipped)
    order by r.status = 'waiting' desc, r.seq desc limit :limit
""",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)


@dataclass(frozen=True, slots=True)
class UserText:
    """One text of the user, None if it is redacted, and its run, None for a message that belongs to no turn.

    `call_id` is set for the answer to a question of the model. `client_id` is the client's own id of the message, and
    `protocol` that of a client that keeps the chat itself; None if there is none. `position` is 0 for a
    message that is not stored yet.
    """

    text: str | None
    run_id: RunId | None
    call_id: str | None = None
    client_id: str | None = None
    protocol: str | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class ContinuedSession:
    """A session, its waiting run (None without one), and the newest texts that the user has said, oldest first.

    Answers to several questions of one step that have the same text count once.
    """

    session: Session
    waiting: Run | None
    said: tuple[UserText, ...]


async def continue_session(tx: Statements, owner_id: UserId, session_id: SessionId, limit: int) -> ContinuedSession:
    """Return the owner's session with up to `limit` texts. Raises NotFound."""
    parameters = {"session_id": session_id, "owner_id": owner_id}
    rows = await tx.fetch(_BY_ID, **parameters, **_text_parameters(limit))
    if not rows:
        raise session_not_found(session_id)
    return await _continued(tx, rows[0], limit)


async def continue_by_external_id(
    tx: Statements, owner_id: UserId, external_id: str, limit: int
) -> ContinuedSession | None:
    """Return the owner's session with this external id and up to `limit` texts.

    Archived sessions count. Return None without one, or if it expires.
    """
    parameters = {"external_id": external_id, "owner_id": owner_id}
    rows = await tx.fetch(_BY_EXTERNAL_ID, **parameters, **_text_parameters(limit))
    return await _continued(tx, rows[0], limit) if rows else None


async def _continued(tx: Statements, row: Row, limit: int) -> ContinuedSession:
    session, stored = session_from(row), _stored_texts(row)
    if not row["has_unstored"]:
        return ContinuedSession(session, None, _newest(stored, limit))
    # Runs come before messages: a message that is stored in between is found twice, and counted once.
    unstored = await tx.fetch(_UNSTORED, session_id=session.id, limit=limit)
    rows = await tx.fetch(_STORED_SINCE, session_id=session.id, **_text_parameters(limit))
    said = [text for one in rows for text in _stored_texts(one)]
    known = {(one.run_id, one.call_id) for one in said}
    runs = sorted((run_from(one) for one in unstored), key=lambda run: run.seq)
    said += [one for run in runs for one in _of_run(run) if (one.run_id, one.call_id) not in known]
    waiting = next((run for run in runs if run.status is RunStatus.WAITING), None)
    return ContinuedSession(session, waiting, _newest(said, limit))


def _text_parameters(limit: int) -> dict[str, object]:
    return {
        "outside": OUTSIDE,
        "answer": WaitKind.ANSWER.value,
        "redacted": REDACTED_TEXT,
        "client_id": CLIENT_MESSAGE_ID,
        "protocol": CLIENT_PROTOCOL,
        "limit": 2 * limit,
    }


def _stored_texts(row: Row) -> list[UserText]:
    """Return the texts in the column of _STORED, oldest first."""
    return [
        UserText(
            None if one["text"] == REDACTED_TEXT else one["text"],
            None if one["run_id"] is None else RunId(UUID(one["run_id"])),
            one["tool_call_id"],
            one["client_id"],
            one["protocol"],
            one["position"],
        )
        for one in reversed(row["stored"])
    ]


def _newest(said: Sequence[UserText], limit: int) -> tuple[UserText, ...]:
    return tuple(_without_repeated_answers(said))[-limit:]


def _of_run(run: Run) -> list[UserText]:
    """Return the message of an unfinished run, and the answers that calls of its last wait were given by now."""
    said = [
        UserText(
            text_of(run.input.content),
            run.id,
            client_id=_text(run.input.metadata.get(CLIENT_MESSAGE_ID)),
            protocol=_text(run.input.metadata.get(CLIENT_PROTOCOL)),
        )
    ]
    if run.wait is not None:
        asked = {awaited.id for awaited in run.wait.calls if awaited.kind is WaitKind.ANSWER}
        for awaited in run.wait.calls:
            asked |= set() if awaited.paused is None else awaited.paused.earlier_ids
        said += [
            UserText(given.text, run.id, given.call_id) for given in run.wait.resolutions if given.call_id in asked
        ]
    return said


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _without_repeated_answers(found: Sequence[UserText]) -> list[UserText]:
    kept: list[UserText] = []
    for said in found:
        is_repeated = kept and said.call_id is not None and (kept[-1].run_id, kept[-1].text) == (said.run_id, said.text)
        if not (is_repeated and kept[-1].call_id is not None):
            kept.append(said)
    return kept
