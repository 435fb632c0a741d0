"""Branch of a session: a new session with copies of its first messages, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.context.view.groups import cut_points
from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.sessions.copies import copy_messages, keep_history
from throughline.db.sessions.create import CreateOutcome, create_session
from throughline.db.sessions.pins import OUTLINE, REACH
from throughline.db.side_jobs import enqueue_job, index_job, summary_job
from throughline.db.statements.rows import MESSAGE_TEXT, SESSION_COLUMNS, message_from, session_from, session_not_found
from throughline.db.statements.sql import sql
from throughline.db.summaries.copy_summary import copy_summary
from throughline.domain.basic_types import SessionId, SummaryId, UserId
from throughline.domain.errors import InvalidInput, SessionBusy
from throughline.domain.message import Source
from throughline.domain.run import CopiedMessages
from throughline.domain.session import NewSession, Session

_ORIGINAL = sql(
    """
    select {session_columns}, cast(extract(epoch from s.expires_at - now()) as float8) as expires_in,
        s.title <> '' and not exists (
            select 1 from messages m where m.session_id = s.id and m.position <= :at and m.role = 'user'
                and starts_with(ltrim({text}, {space}), rtrim(s.title, '…'))
        ) and exists (
            select 1 from messages m where m.session_id = s.id and m.position > :at and m.role = 'user'
                and starts_with(ltrim({text}, {space}), rtrim(s.title, '…'))
        ) as is_title_of_later
    from sessions s where s.id = :original_id and s.owner_id = :owner_id
""",
    session_columns=SESSION_COLUMNS,
    text=MESSAGE_TEXT,
    space="E' \\t\\r\\n\\f\\x0b'",
)
"""Statement that returns the session to branch, and whether its title was made of a message that the branch lacks."""

_UNFINISHED = sql("""
    select r.id as run_id, first.position from runs r cross join lateral (
        select min(m.position) as position from messages m where m.run_id = r.id
    ) first
    where r.session_id = :session_id and r.status in ('queued', 'running', 'waiting') and first.position <= :at
    order by first.position limit 1
""")
_COPY_PINS = sql("""
    insert into message_pins (message_id, session_id)
    select c.id, c.session_id from message_pins p
        join messages o on o.id = p.message_id
        join messages c on c.session_id = :session_id and c.position = o.position
    where p.session_id = :original_id
    order by c.id on conflict (message_id) do nothing
""")
_FINISH = sql(
    """
    update sessions s set summary_instructions = :summary_instructions where s.id = :session_id
    returning {session_columns}
""",
    session_columns=SESSION_COLUMNS,
)


@dataclass(frozen=True, slots=True)
class NewBranch:
    """A branch to create: the session of its original messages, and the position of the last one that is copied.

    An empty `title` leaves it the original session's. `fingerprint` is a hash of the request, to detect a reused
    idempotency key.
    """

    owner_id: UserId
    original_id: SessionId
    at: int
    source: Source
    title: str = ""
    idempotency_key: str | None = None
    fingerprint: str = ""


async def branch_session(
    tx: Statements, session_id: SessionId, version_id: SummaryId, new: NewBranch
) -> tuple[Session, CreateOutcome]:
    """Store the branch under `session_id`, its summary as `version_id`, or find that of the idempotency key.

    It takes over agent, metadata, summary instructions and, of the copied messages, pins and summary. A session that
    expires has branches that expire with it. A repeated call finds the branch stored and adds nothing.

    Raises NotFound, IdempotencyKeyReused, InvalidInput for a position beyond the last message or within a group, and
    SessionBusy if one of the messages belongs to an unfinished turn.
    """
    await keep_history(tx, new.owner_id)
    rows = await tx.fetch(_ORIGINAL, original_id=new.original_id, owner_id=new.owner_id, at=new.at)
    if not rows:
        raise session_not_found(new.original_id)
    original = session_from(rows[0])
    session, outcome = await create_session(tx, _new_session(session_id, rows[0], new))
    if outcome is not CreateOutcome.CREATED or session.message_count:
        return session, outcome
    await _check_position(tx, original, new.at)
    copied = CopiedMessages(original.id, new.at)
    await copy_messages(tx, new.owner_id, session_id, copied)
    await tx.fetch(_COPY_PINS, session_id=session_id, original_id=original.id)
    await copy_summary(tx, session_id, copied, version_id)
    instructions = original.summary_instructions
    rows_of_branch = await tx.fetch(_FINISH, session_id=session_id, summary_instructions=instructions)
    if new.at and rows[0]["expires_in"] is None:
        await enqueue_job(tx, summary_job(session_id, new.owner_id))
        await enqueue_job(tx, index_job(new.owner_id))
    return session_from(rows_of_branch[0]), outcome


def _new_session(session_id: SessionId, original: Row, new: NewBranch) -> NewSession:
    """Return the session to create. It has no title if that would show a message that is not copied."""
    title = "" if original["is_title_of_later"] else original["title"]
    return NewSession(
        owner_id=new.owner_id,
        agent=original["agent"],
        title=new.title or title,
        source=new.source,
        metadata={**original["metadata"], "branched_from": str(new.original_id)},
        idempotency_key=new.idempotency_key,
        fingerprint=new.fingerprint,
        id=session_id,
        expires_in_seconds=original["expires_in"],
    )


async def _check_position(tx: Statements, original: Session, at: int) -> None:
    """Raise an error unless the session can be branched after the message at position `at`."""
    if at > original.message_count:
        raise InvalidInput(
            f"Session {original.id} has {original.message_count} messages: `at` is at most {original.message_count}.",
            field="at",
        )
    busy = await tx.fetch(_UNFINISHED, session_id=original.id, at=at)
    if busy:
        raise SessionBusy(
            f"The turn {busy[0]['run_id']} of session {original.id} is not finished, and message "
            f"{busy[0]['position']} is its first. Branch at {busy[0]['position'] - 1} or earlier, or wait for the turn "
            "or cancel it.",
            run_id=str(busy[0]["run_id"]),
        )
    around = await tx.fetch(
        OUTLINE, session_id=original.id, owner_id=original.owner_id, low=at - REACH, high=at + REACH
    )
    _check_cut(around, at, original.message_count)


def _check_cut(around: Sequence[Row], at: int, last: int) -> None:
    """Raise InvalidInput if a tool call and one of its results are on both sides of position `at`.

    `around` are outlines of the messages near it, and `last` is the session's last position.
    """
    cuts = {point.through_position for point in cut_points([message_from(row) for row in around])} | {0, last}
    if at in cuts:
        return
    before, after = max(cut for cut in cuts if cut < at), min(cut for cut in cuts if cut > at)
    raise InvalidInput(
        f"Message {at} belongs with the messages up to {after}: a tool call and its results are copied together. "
        f"Branch at {before} or at {after}.",
        field="at",
    )
