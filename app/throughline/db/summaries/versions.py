"""Reading the versions of a session's summary."""

from collections.abc import Mapping

from throughline.db.connection.statement import Statement
from throughline.db.connection.transactions import Statements
from throughline.db.statements.rows import VERSION_COLUMNS, version_from
from throughline.db.statements.sql import sql
from throughline.db.summaries.stretches import load_stretches
from throughline.domain.ids import SessionId, SummaryId, UserId
from throughline.domain.page import Page
from throughline.domain.summary import SummaryState, SummaryVersion, SummaryWithStretches

_LIST = sql(
    """
    select {version_columns} from sessions s left join summary_versions v on v.session_id = s.id
        and (cast(:newest as integer) is null or v.version <= cast(:newest as integer))
    where s.id = :session_id and s.owner_id = :owner_id order by v.version desc nulls first limit :limit
""",
    version_columns=VERSION_COLUMNS,
)
_ONE = sql(
    """
    select {version_columns} from sessions s left join summary_versions v on v.session_id = s.id
        and (v.id = cast(:summary_id as uuid) or v.version = cast(:version as integer))
    where s.id = :session_id and s.owner_id = :owner_id
""",
    version_columns=VERSION_COLUMNS,
)
_LATEST = sql(
    "select {version_columns} from summary_versions v where v.session_id = :session_id and v.state = 'adopted'",
    version_columns=VERSION_COLUMNS,
)
_PREPARED = sql(
    """
    select {version_columns} from sessions s
        join summary_versions v on v.session_id = s.id and v.base_version = s.summary_version
    where s.id = :session_id and v.state = 'prepared'
""",
    version_columns=VERSION_COLUMNS,
)
_OF_STATE: Mapping[SummaryState, Statement] = {SummaryState.ADOPTED: _LATEST, SummaryState.PREPARED: _PREPARED}


async def list_versions(
    tx: Statements, owner_id: UserId, session_id: SessionId, *, limit: int, newest: int | None
) -> Page[SummaryVersion] | None:
    """Return up to `limit` versions, a prepared one first, then the newest; None where the owner has no such session.

    `newest` is the number of the first version wanted, as the cursor of the page before says it. At most one version is
    prepared and has no number, and it is the first of all, so that each page after the first begins with a number.
    """
    rows = await tx.fetch(_LIST, session_id=session_id, owner_id=owner_id, newest=newest, limit=limit + 1)
    if not rows:
        return None
    found = tuple(version_from(row) for row in rows if row["id"] is not None)
    return Page(found[:limit], str(found[limit].version) if len(found) > limit else None)


async def find_version(
    tx: Statements, owner_id: UserId, session_id: SessionId, wanted: SummaryId | int
) -> tuple[SummaryVersion | None, bool]:
    """Return the version with this id or number, None for none; and whether the owner has such a session."""
    by_number = isinstance(wanted, int)
    asked = {"summary_id": None if by_number else wanted, "version": wanted if by_number else None}
    rows = await tx.fetch(_ONE, session_id=session_id, owner_id=owner_id, **asked)
    found = version_from(rows[0]) if rows and rows[0]["id"] is not None else None
    return found, bool(rows)


async def latest_version(tx: Statements, session_id: SessionId) -> SummaryVersion | None:
    """Return the adopted version, None where nothing is summarised."""
    rows = await tx.fetch(_LATEST, session_id=session_id)
    return version_from(rows[0]) if rows else None


async def load_parts(tx: Statements, session_id: SessionId, state: SummaryState) -> SummaryWithStretches | None:
    """Return the adopted version, or the prepared one that builds on it, with its stretches, oldest first.

    Two statements, since neither a version nor its stretches ever change. Raises ValueError for another state.
    """
    if state not in _OF_STATE:
        raise ValueError(f"a session has many versions that are {state.value}: there are no parts of the one")
    rows = await tx.fetch(_OF_STATE[state], session_id=session_id)
    if not rows:
        return None
    version = version_from(rows[0])
    return SummaryWithStretches(version, await load_stretches(tx, session_id, version.stretch_ids))
