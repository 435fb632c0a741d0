"""The versions of a session's summary: listed, and gone back to."""

from sqlalchemy import text

from app.db.new_ids import new_id
from app.db.rows import SESSION_COLUMNS, VERSION_COLUMNS, session_from, session_not_found, version_from
from app.db.sql import sql
from app.db.transactions import Statements, Transactions
from app.domain.errors import NotFound
from app.domain.ids import SessionId, SummaryId, UserId
from app.domain.session import Session
from app.domain.summary import SummaryState, SummaryVersion

_LIST = sql(
    """
    select {version_columns} from sessions s left join summary_versions v on v.session_id = s.id
    where s.id = :session_id and s.owner_id = :owner_id order by v.version desc
""",
    version_columns=VERSION_COLUMNS,
)
_LATEST = sql(
    """
    select {version_columns} from summary_versions v where v.session_id = :session_id and v.state = 'adopted'
""",
    version_columns=VERSION_COLUMNS,
)
_COUNT = text("select count(*) as versions from summary_versions where session_id = :session_id")
_LOCK = sql(
    """
    select {session_columns} from sessions s where s.id = :session_id and s.owner_id = :owner_id for no key update
""",
    session_columns=SESSION_COLUMNS,
)
_FIND = sql(
    "select {version_columns} from summary_versions v where v.id = :summary_id and v.session_id = :session_id",
    version_columns=VERSION_COLUMNS,
)
_SUPERSEDE = text("""
    update summary_versions set state = 'superseded' where session_id = :session_id and state = 'adopted'
""")
_RESTORE = sql(
    """
    with version as (
        insert into summary_versions (id, session_id, version, state, stretch_ids, text, ledger, token_count,
            through_id, through_position, model)
        select :new_id, v.session_id, :version, 'adopted', v.stretch_ids, v.text, v.ledger, v.token_count, v.through_id,
            v.through_position, v.model
        from summary_versions v where v.id = :summary_id
        returning session_id, text, token_count, through_id, through_position, version
    )
    update sessions s set conversation_summary = version.text, summary_through_id = version.through_id,
        summary_through_position = version.through_position, summary_tokens = version.token_count,
        summary_version = version.version, view_state = '{{}}'
    from version where s.id = version.session_id
    returning {session_columns}
""",
    session_columns=SESSION_COLUMNS,
)


class SummaryRepository:
    """What doors read and change of summaries; turns adopt through the message store."""

    def __init__(self, transactions: Transactions) -> None:
        """Work through `transactions`."""
        self._transactions = transactions

    async def list(self, owner_id: UserId, session_id: SessionId) -> tuple[SummaryVersion, ...]:
        """Return all versions, the newest first. Raises NotFound."""
        rows = await self._transactions.fetch(_LIST, session_id=session_id, owner_id=owner_id)
        if not rows:
            raise session_not_found(session_id)
        return tuple(version_from(row) for row in rows if row["id"] is not None)

    async def latest(self, session_id: SessionId) -> SummaryVersion | None:
        """Return the adopted version, None where nothing is summarised."""
        rows = await self._transactions.fetch(_LATEST, session_id=session_id)
        return version_from(rows[0]) if rows else None

    async def count(self, session_id: SessionId) -> int:
        """Return how many versions there have been."""
        return int((await self._transactions.fetch(_COUNT, session_id=session_id))[0]["versions"])

    async def restore(self, owner_id: UserId, session_id: SessionId, summary_id: SummaryId) -> Session:
        """Adopt an earlier version again, as a new version; the cursor may go back. Raises NotFound.

        A turn that summarises meanwhile finds another `summary_version` than it expected and stores nothing.
        """

        async def restore(tx: Statements) -> Session:
            found = await tx.fetch(_LOCK, session_id=session_id, owner_id=owner_id)
            if not found:
                raise session_not_found(session_id)
            session = session_from(found[0])
            versions = await tx.fetch(_FIND, summary_id=summary_id, session_id=session_id)
            if not versions:
                raise NotFound(f"There is no summary {summary_id} of session {session_id}.")
            if version_from(versions[0]).state is SummaryState.ADOPTED:
                return session
            await tx.fetch(_SUPERSEDE, session_id=session_id)
            rows = await tx.fetch(_RESTORE, summary_id=summary_id, new_id=new_id(), version=session.summary_version + 1)
            return session_from(rows[0])

        return await self._transactions.run(restore)
