"""Creation of sessions: once per idempotency key, and once per external id of an owner.

A module of its own, so that a caller can create or find a session within a transaction of its own.
"""

from enum import StrEnum

from throughline.db.connection.transactions import Statements
from throughline.db.statements.rows import SESSION_COLUMNS, session_from, to_json
from throughline.db.statements.sql import check_key, key_reused, new_id, sql
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import ExternalIdTaken
from throughline.domain.session import NewSession, Session

_CREATE = sql(
    """
    with earlier as (
        select {session_columns}, s.fingerprint, s.idempotency_key = :idempotency_key as has_key from sessions s
        where s.id = :id or (s.owner_id = :owner_id and s.idempotency_key = :idempotency_key)
            or (s.owner_id = :owner_id and s.external_id = :external_id)
    ), created as (
        insert into sessions as s
            (id, owner_id, agent, title, source, metadata, external_id, idempotency_key, fingerprint, expires_at)
        select :id, :owner_id, :agent, :title, :source, cast(:metadata as jsonb), :external_id, :idempotency_key,
            :fingerprint, now() + make_interval(secs => cast(:expires_in as float8))
        where not exists (select 1 from earlier)
        on conflict (owner_id, external_id) where external_id is not null
            do update set external_id = excluded.external_id
        returning {session_columns}, s.fingerprint, s.idempotency_key = :idempotency_key as has_key
    )
    select * from created union all select * from earlier order by has_key desc nulls last limit 1
""",
    session_columns=SESSION_COLUMNS,
)
"""Statement that creates a session or returns one: that of the idempotency key before that of the external id.

On a conflict a concurrent call has just created the session. The update changes nothing; it returns the row, which the
snapshot of this statement does not contain.
"""

_HOLDER = sql("""
    select s.id from sessions s where s.owner_id = :owner_id and s.external_id = :external_id and s.id <> :session_id
""")


class CreateOutcome(StrEnum):
    """How a session was found for a request to create it.

    REPLAYED: an earlier request with the same idempotency key has created it. FOUND: it has the requested external id.
    """

    CREATED = "created"
    REPLAYED = "replayed"
    FOUND = "found"


async def create_session(tx: Statements, new: NewSession) -> tuple[Session, CreateOutcome]:
    """Store the session, or find the owner's session with its idempotency key or external id, in one statement.

    A session that is found is not changed, and may be archived. Calls at the same time create one session. Raises
    IdempotencyKeyReused if the key was used for another request.

    A transaction of several statements may be repeated: its session needs an idempotency key, an external id, or an
    `id` that was made before.
    """
    session_id = new.id or new_id()
    (row,) = await tx.fetch(
        _CREATE,
        id=session_id,
        owner_id=new.owner_id,
        agent=new.agent,
        title=new.title,
        source=new.source.value,
        metadata=to_json(new.metadata),
        external_id=new.external_id,
        idempotency_key=check_key(new.idempotency_key),
        fingerprint=new.fingerprint,
        expires_in=new.expires_in_seconds,
    )
    session = session_from(row)
    if session.id == session_id:
        return session, CreateOutcome.CREATED
    if not row["has_key"]:
        return session, CreateOutcome.FOUND
    if row["fingerprint"] != new.fingerprint:
        raise key_reused(new.idempotency_key)
    return session, CreateOutcome.REPLAYED


async def check_external_id(tx: Statements, owner_id: UserId, session_id: SessionId, external_id: str) -> None:
    """Raise ExternalIdTaken if another session of the owner than `session_id` has the external id."""
    rows = await tx.fetch(_HOLDER, owner_id=owner_id, session_id=session_id, external_id=external_id)
    if rows:
        raise ExternalIdTaken(
            f"Another session of yours has the external id {external_id!r}. Choose another one, or first change the "
            "`external_id` of that session."
        )
