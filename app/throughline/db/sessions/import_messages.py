"""Import of a conversation held elsewhere: a new session with its messages, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from throughline.db.connection.transactions import Statements
from throughline.db.sessions.append import RunMessage, append_messages
from throughline.db.sessions.copies import CopyingSessions, copy_messages, keep_history, link_copies
from throughline.db.sessions.create import check_external_id
from throughline.db.side_jobs import enqueue_job, index_job, summary_job
from throughline.db.statements.rows import SESSION_COLUMNS, session_from, to_json
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import JsonObject, SessionId, UserId
from throughline.domain.message import NewMessage, Source
from throughline.domain.run import CopiedMessages
from throughline.domain.session import Session

_EXISTS = sql("select 1 as found from sessions where id = :id")
_OPEN = sql("""
    insert into sessions (id, owner_id, agent, title, source, metadata, external_id, expires_at)
    values (:id, :owner_id, :agent, :title, :source, cast(:metadata as jsonb), :external_id,
        now() + make_interval(secs => cast(:expires_in as float8)))
""")
_GET = sql("select {columns} from sessions s where s.id = :id", columns=SESSION_COLUMNS)


@dataclass(frozen=True, slots=True)
class DatedMessage:
    """A message of an imported conversation with its original time; without a time the import's time is used.

    `counts` is False if its tokens are not counted, because it is the marker of a redacted message.
    `exported_position` is its position in the exported session, None without one.
    """

    message: NewMessage
    created_at: datetime | None = None
    counts: bool = True
    exported_position: int | None = None


@dataclass(frozen=True, slots=True)
class ImportedConversation:
    """An imported conversation as it was submitted. `exported_id` is the session of which it is an export."""

    agent: str
    title: str
    metadata: JsonObject
    messages: tuple[DatedMessage, ...]
    external_id: str | None = None
    exported_id: SessionId | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """The session to create for an imported conversation.

    With `expires_in_seconds` it expires, as a new session does. `copied` are messages of another session that come
    first. `exported_id` is the session whose export it is, which may be nobody's or another user's.
    """

    owner_id: UserId
    agent: str
    title: str
    source: Source
    metadata: JsonObject
    external_id: str | None = None
    expires_in_seconds: float | None = None
    copied: CopiedMessages | None = None
    exported_id: SessionId | None = None


async def import_session(
    tx: Statements, session_id: SessionId, new: Imported, messages: Sequence[DatedMessage]
) -> Session:
    """Store the session under `session_id` with its messages; a repeated call finds them stored and adds nothing.

    Queues jobs that prepare the session's summary and index it, so that no turn or search has to wait for that; none
    for a session that expires. Raises ExternalIdTaken, and NotFound if messages to be copied are gone.
    """
    if new.copied is not None:
        await keep_history(tx, new.owner_id)
    if not await tx.fetch(_EXISTS, id=session_id):
        if new.external_id is not None:
            await check_external_id(tx, new.owner_id, session_id, new.external_id)
        await tx.fetch(
            _OPEN,
            id=session_id,
            owner_id=new.owner_id,
            agent=new.agent,
            title=new.title,
            source=new.source.value,
            metadata=to_json(new.metadata),
            external_id=new.external_id,
            expires_in=new.expires_in_seconds,
        )
        await _append(tx, session_id, new, messages)
    session = session_from((await tx.fetch(_GET, id=session_id))[0])
    if new.expires_in_seconds is None:
        await enqueue_job(tx, summary_job(session_id, new.owner_id))
        await enqueue_job(tx, index_job(new.owner_id))
    return session


async def _append(tx: Statements, session_id: SessionId, new: Imported, messages: Sequence[DatedMessage]) -> None:
    """Store the messages, and link those of an export of the owner's own session to their originals."""
    if new.copied is not None:
        await copy_messages(tx, new.owner_id, session_id, new.copied)
    written = [RunMessage(dated.message, created_at=dated.created_at) for dated in messages]
    await append_messages(tx, session_id, written)
    if new.exported_id is not None:
        positions = {
            place: dated.exported_position
            for place, dated in enumerate(messages, start=1)
            if dated.exported_position is not None
        }
        sessions = CopyingSessions(new.owner_id, session_id, new.exported_id)
        await link_copies(tx, sessions, positions, is_kept=True)
