"""The session repository: create, read, list, change and erase, always on behalf of the owner."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from throughline.db.connection.notifier import Notifier
from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.sessions.append import append_history
from throughline.db.sessions.branch import NewBranch, branch_session
from throughline.db.sessions.create import CreateOutcome, check_external_id, create_session
from throughline.db.sessions.erasure import erase_session
from throughline.db.sessions.find_session import ContinuedSession, continue_by_external_id, continue_session
from throughline.db.sessions.import_messages import DatedMessage, Imported, import_session
from throughline.db.sessions.message_cache import MessageCache
from throughline.db.statements.locks import lock_session
from throughline.db.statements.rows import SESSION_COLUMNS, session_from, session_not_found, to_json
from throughline.db.statements.sql import decode_cursor, encode_cursor, new_id, sql
from throughline.db.summaries.adopt import discard_prepared
from throughline.domain.basic_types import JsonObject, MessageId, Page, SessionId, SummaryId, UserId
from throughline.domain.message import Message, MessageCopy, NewMessage
from throughline.domain.recall import Hit
from throughline.domain.session import NewSession, Session

_WILDCARDS = re.compile(r"([\\%_])")
_GET = sql(
    "select {session_columns} from sessions s where s.id = :id and s.owner_id = :owner_id",
    session_columns=SESSION_COLUMNS,
)
_LIST = sql(
    """
    select {session_columns} from sessions s
    where s.owner_id = :owner_id
        and (cast(:before_time as timestamptz) is null
            or (s.updated_at, s.id) < (:before_time, cast(:before_id as uuid)))
        and (cast(:agent as text) is null or s.agent = :agent)
        and (cast(:pattern as text) is null or s.title ilike :pattern)
        and (cast(:external_id as text) is null or s.external_id = :external_id)
        and (cast(:first_id as uuid) is null
            or (s.id >= cast(:first_id as uuid) and s.id <= cast(:last_id as uuid)))
        and (cast(:metadata as jsonb) is null or (s.metadata @> cast(:metadata as jsonb) and s.metadata <> '{{}}'))
        and (:include_archived or not s.archived) and s.expires_at is null
    order by s.updated_at desc, s.id desc
    limit :limit
""",
    session_columns=SESSION_COLUMNS,
)
_TITLES = sql("select s.id, s.title from sessions s where s.id = any(cast(:ids as uuid[])) and s.owner_id = :owner_id")
_UPDATE = sql(
    """
    update sessions s set title = coalesce(:title, s.title), archived = coalesce(:archived, s.archived),
        metadata = coalesce(cast(:metadata as jsonb), s.metadata),
        summary_instructions = coalesce(:summary_instructions, s.summary_instructions),
        agent = coalesce(:agent, s.agent), external_id = nullif(coalesce(:external_id, s.external_id), ''),
        updated_at = now()
    where s.id = :id and s.owner_id = :owner_id
    returning {session_columns}
""",
    session_columns=SESSION_COLUMNS,
)


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """The sessions to list: those that pass all filters.

    `q` is searched in titles, case-insensitively. `metadata` is an object that the sessions' metadata contain.
    `ids` are the smallest and the largest id.
    """

    limit: int = 50
    cursor: str | None = None
    agent: str | None = None
    q: str | None = None
    external_id: str | None = None
    metadata: JsonObject | None = None
    ids: tuple[UUID, UUID] | None = None
    include_archived: bool = False


@dataclass(frozen=True, slots=True)
class SessionChange:
    """Changes of a session; None leaves a value unchanged, and an empty `external_id` removes it."""

    title: str | None = None
    metadata: JsonObject | None = None
    archived: bool | None = None
    summary_instructions: str | None = None
    agent: str | None = None
    external_id: str | None = None


class SessionRepository:
    """Storage of sessions. Missing sessions and other users' sessions raise the same NotFound."""

    def __init__(self, transactions: Transactions, notifier: Notifier, loaded: MessageCache) -> None:
        """Use `transactions`; notify turns and readers of erased sessions, and side jobs, through `notifier`.

        The rows of erased sessions are removed from the cache `loaded`.
        """
        self._transactions = transactions
        self._notifier = notifier
        self._loaded = loaded

    async def create(self, new: NewSession) -> tuple[Session, CreateOutcome]:
        """Store the session, or find the one with its idempotency key or external id. Raises IdempotencyKeyReused."""
        return await create_session(self._transactions, new)

    async def import_conversation(self, new: Imported, messages: Sequence[DatedMessage]) -> Session:
        """Store a conversation held elsewhere as a new session; its messages' tokens are counted already."""
        session_id = SessionId(new_id())
        session = await self._transactions.run(lambda tx: import_session(tx, session_id, new, messages))
        self._notifier.announce_jobs()
        return session

    async def branch(self, new: NewBranch) -> tuple[Session, CreateOutcome]:
        """Store a new session with copies of the first messages of another, or find that of the idempotency key.

        Raises what `branch_session` raises.
        """
        session_id, version_id = SessionId(new_id()), SummaryId(new_id())
        session, outcome = await self._transactions.run(lambda tx: branch_session(tx, session_id, version_id, new))
        self._notifier.announce_jobs()
        return session, outcome

    async def get(self, owner_id: UserId, session_id: SessionId) -> Session:
        """Return the session. Raises NotFound."""
        return _one(await self._transactions.fetch(_GET, id=session_id, owner_id=owner_id), session_id)

    async def continue_session(self, owner_id: UserId, session_id: SessionId, limit: int) -> ContinuedSession:
        """Return the session with its waiting run and the user's newest `limit` texts. Raises NotFound."""
        return await continue_session(self._transactions, owner_id, session_id, limit)

    async def continue_by_external_id(self, owner_id: UserId, external_id: str, limit: int) -> ContinuedSession | None:
        """Return the owner's session with this external id, as `continue_session` does.

        Archived sessions count. Return None without one, or if it expires.
        """
        return await continue_by_external_id(self._transactions, owner_id, external_id, limit)

    async def append(
        self, owner_id: UserId, session_id: SessionId, messages: Sequence[NewMessage]
    ) -> tuple[Message, ...]:
        """Append messages that belong to no turn, and return them; their tokens are counted already.

        Raises NotFound, and SessionBusy while a turn of the session is unfinished.
        """
        ids = [MessageId(new_id()) for _ in messages]
        named = [replace(message, id=message_id) for message, message_id in zip(messages, ids, strict=True)]
        return await self._transactions.run(lambda tx: append_history(tx, owner_id, session_id, named))

    async def titles_of(self, owner_id: UserId, hits: Sequence[Hit]) -> tuple[str, ...]:
        """Return the title of each hit's session, '' for a session that is not the owner's."""
        ids = {hit.message.session_id for hit in hits}
        rows = await self._transactions.fetch(_TITLES, owner_id=owner_id, ids=list(ids))
        titles = {row["id"]: str(row["title"]) for row in rows}
        return tuple(titles.get(hit.message.session_id, "") for hit in hits)

    async def list(self, owner_id: UserId, query: SessionQuery) -> Page[Session]:
        """Return the owner's sessions, most recently used first. Raises InvalidInput for an invalid cursor."""
        before_time, before_id = (None, None) if query.cursor is None else decode_cursor(query.cursor)
        first_id, last_id = (None, None) if query.ids is None else query.ids
        # These filters have an index, which only a plan for the parameters can use.
        is_cached = query.external_id is None and not query.metadata and query.ids is None
        rows = await self._transactions.fetch(
            replace(_LIST, is_cached=is_cached),
            owner_id=owner_id,
            before_time=before_time,
            before_id=before_id,
            agent=query.agent,
            pattern=_pattern(query.q),
            external_id=query.external_id,
            metadata=to_json(query.metadata) if query.metadata else None,
            first_id=first_id,
            last_id=last_id,
            include_archived=query.include_archived,
            limit=query.limit + 1,
        )
        sessions = tuple(session_from(row) for row in rows[: query.limit])
        has_more = len(rows) > query.limit
        return Page(sessions, encode_cursor(sessions[-1].updated_at, sessions[-1].id) if has_more else None)

    async def update(self, owner_id: UserId, session_id: SessionId, change: SessionChange) -> Session:
        """Apply the change and return the session. Raises NotFound, and ExternalIdTaken if another session has the id.

        New summary instructions discard a prepared summary, because it was written without them.
        """
        key = {"id": session_id, "owner_id": owner_id}
        values = {
            "title": change.title,
            "archived": change.archived,
            "metadata": None if change.metadata is None else to_json(change.metadata),
            "summary_instructions": change.summary_instructions,
            "agent": change.agent,
            "external_id": change.external_id,
        }
        if change.summary_instructions is None and not change.external_id:
            return _one(await self._transactions.fetch(_UPDATE, **key, **values), session_id)

        async def checked(tx: Statements) -> Session:
            session = await lock_session(tx, session_id, owner_id)
            if change.external_id:
                await check_external_id(tx, owner_id, session_id, change.external_id)
            if change.summary_instructions not in {None, session.summary_instructions}:
                await discard_prepared(tx, session_id)
            return _one(await tx.fetch(_UPDATE, **key, **values), session_id)

        return await self._transactions.run(checked)

    async def delete(self, owner_id: UserId, session_id: SessionId) -> tuple[MessageCopy, ...]:
        """Erase the session with its messages, runs, events and summaries, and stop its runs.

        Return the copies of its messages that the user made and that stay; other copies are redacted.

        Raises NotFound. Raises SessionBusy if another session of the owner that quotes it, or has copies of its
        messages, has an unfinished turn.
        """
        erased = await self._transactions.run(lambda tx: erase_session(tx, owner_id, session_id))
        for changed in (session_id, *erased.session_ids):
            self._loaded.forget(changed)
        for run_id in erased.run_ids:
            self._notifier.announce_cancel(run_id)
            self._notifier.announce_events(run_id)
        if erased.run_ids:
            self._notifier.announce_work()  # the user's other runs may start now
        return erased.kept_copies


def _one(rows: Sequence[Row], session_id: SessionId) -> Session:
    if not rows:
        raise session_not_found(session_id)
    return session_from(rows[0])


def _pattern(words: str | None) -> str | None:
    """Return an ILIKE pattern in which all characters of `words` are literal."""
    escaped = _WILDCARDS.sub(r"\\\1", words or "")
    return f"%{escaped}%" if words else None
