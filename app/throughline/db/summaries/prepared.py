"""Prepared summaries: written in advance on top of the adopted one, and adopted later.

They are discarded if another summary is adopted first.
"""

from throughline.db.connection.transactions import Statements
from throughline.db.statements.locks import hold_lease, lock_session, summary_moved
from throughline.db.statements.sql import sql
from throughline.db.statements.summary_rows import VERSION_COLUMNS, version_from
from throughline.db.summaries.adopt import (
    INSERT_VERSION,
    check_forward,
    discard_prepared,
    move_session,
    supersede,
    version_parameters,
)
from throughline.db.summaries.segments import check_segments
from throughline.domain.errors import SummaryConflict
from throughline.domain.ids import SessionId, SummaryId
from throughline.domain.run import Lease
from throughline.domain.session import Session
from throughline.domain.summary import Adoption, SummaryVersion

_PREPARED = sql(
    "select {version_columns} from summary_versions v where v.session_id = :session_id and v.state = 'prepared'",
    version_columns=VERSION_COLUMNS,
)
_GET = sql("select {version_columns} from summary_versions v where v.id = :version_id", version_columns=VERSION_COLUMNS)
_END_FAILURE = sql("""
    update sessions set summary_failure = '', summary_failed_at = null where id = :session_id and summary_failure <> ''
""")
_ADOPT = sql("""
    update summary_versions set state = 'adopted', version = :version
    where id = :version_id and session_id = :session_id and state = 'prepared' and base_version = :base_version
    returning through_position
""")


async def prepare_summary(tx: Statements, adoption: Adoption, version_id: SummaryId) -> SummaryVersion:
    """Store the version as prepared, replacing an earlier one that covers less; the adopted summary is unchanged.

    Raises SummaryConflict if the adopted summary or the session's instructions have changed, or if a prepared summary
    covers as much. Raises NotFound, and ValueError if the segments do not match what the summary covers.
    """
    session = await lock_session(tx, adoption.session_id)
    if session.summary_version != adoption.expected_version:
        raise summary_moved(session, adoption.expected_version)
    if session.summary_instructions != adoption.session_instructions:
        raise SummaryConflict(f"What summaries of session {session.id} have to keep has changed. Write it again.")
    check_forward(session, adoption.through_position)
    await check_segments(tx, adoption)
    for earlier in map(version_from, await tx.fetch(_PREPARED, session_id=session.id)):
        if earlier.id == version_id:
            return earlier
        if earlier.through_position >= adoption.through_position:
            raise SummaryConflict(
                f"A summary of session {session.id} that reaches position {earlier.through_position} is prepared "
                f"already; this one reaches {adoption.through_position}. Build on that one."
            )
    await discard_prepared(tx, session.id)
    await tx.fetch(_END_FAILURE, session_id=session.id)
    version = {"version": None, "base_version": session.summary_version, "state": "prepared"}
    await tx.fetch(INSERT_VERSION, version_id=version_id, **version, **version_parameters(adoption))
    return version_from((await tx.fetch(_GET, version_id=version_id))[0])


async def adopt_prepared(
    tx: Statements, session_id: SessionId, version_id: SummaryId, expected_version: int, lease: Lease | None
) -> Session:
    """Give the prepared version the next number and make it the session's summary.

    Raises SummaryConflict if the adopted summary is not `expected_version`, or if the prepared one is gone. Raises
    NotFound, LeaseLost.
    """
    await hold_lease(tx, session_id, lease)
    session = await lock_session(tx, session_id)
    if session.summary_version != expected_version:
        raise summary_moved(session, expected_version)
    await supersede(tx, session_id)
    number = {"version": expected_version + 1, "base_version": expected_version}
    rows = await tx.fetch(_ADOPT, version_id=version_id, session_id=session_id, **number)
    if not rows:
        raise SummaryConflict(
            f"The prepared summary {version_id} of session {session_id} was deleted or replaced. "
            "Load the session again."
        )
    check_forward(session, rows[0]["through_position"])
    return await move_session(tx, version_id)
