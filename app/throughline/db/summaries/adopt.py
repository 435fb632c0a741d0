"""Adoption of a summary: version, text and cursor change in one transaction."""

from throughline.db.connection.transactions import Statements
from throughline.db.jobs.queue import ENQUEUE_INDEXING
from throughline.db.statements.locks import hold_lease, lock_session, summary_moved
from throughline.db.statements.rows import SESSION_COLUMNS, session_from
from throughline.db.statements.sql import sql
from throughline.db.statements.summary_rows import kept_facts_json
from throughline.db.summaries.segments import check_segments
from throughline.domain.errors import SummaryConflict
from throughline.domain.ids import SessionId, SummaryId
from throughline.domain.run import Lease
from throughline.domain.session import Session
from throughline.domain.summary import Adoption

INSERT_VERSION = sql("""
    insert into summary_versions (id, session_id, version, base_version, state, segment_ids, text, kept_facts,
        token_count, through_id, through_position, model, run_id)
    values (:version_id, :session_id, :version, :base_version, :state, :segment_ids, :text, cast(:kept_facts as jsonb),
        :token_count, :through_id, :through_position, :model, :run_id)
""")
_SUPERSEDE = sql("""
    update summary_versions set state = 'superseded' where session_id = :session_id and state = 'adopted'
""")
_DISCARD = sql("delete from summary_versions where session_id = :session_id and state = 'prepared' returning id")
_MOVE = sql(
    """
    with moved as (
        update sessions s set conversation_summary = v.text, summary_through_id = v.through_id,
            summary_through_position = v.through_position, summary_tokens = v.token_count, summary_version = v.version,
            summary_failure = '', summary_failed_at = null
        from summary_versions v where v.id = :version_id and s.id = v.session_id
        returning {session_columns}, s.unindexed_since
    ), due as (
        select owner_id from moved where unindexed_since is not null
    ), queued as ({enqueue_indexing})
    select {session_columns} from moved s
""",
    session_columns=SESSION_COLUMNS,
    enqueue_indexing=ENQUEUE_INDEXING,
)
_IS_ADOPTED = sql("select 1 as found from summary_versions where id = :version_id and state = 'adopted'")


async def adopt_summary(tx: Statements, adoption: Adoption, version_id: SummaryId, lease: Lease | None) -> Session:
    """Store a summary version as `version_id` and make it the session's summary.

    If the transaction is repeated after a lost reply, it finds its own version and returns. Raises SummaryConflict if
    the session's summary is not the expected version or covers as much. Raises NotFound, LeaseLost, and ValueError if
    the segments do not match what the summary covers.
    """
    await hold_lease(tx, adoption.session_id, lease)
    session = await lock_session(tx, adoption.session_id)
    if session.summary_version != adoption.expected_version:
        if await is_adopted(tx, version_id):
            return session
        raise summary_moved(session, adoption.expected_version)
    check_forward(session, adoption.through_position + adoption.is_rewritten)
    await check_segments(tx, adoption)
    await discard_prepared(tx, session.id)
    await supersede(tx, session.id)
    version = {"version": session.summary_version + 1, "base_version": session.summary_version, "state": "adopted"}
    await tx.fetch(INSERT_VERSION, version_id=version_id, **version, **version_parameters(adoption))
    return await move_session(tx, version_id)


def check_forward(session: Session, through_position: int) -> None:
    """Raise SummaryConflict unless `through_position` is beyond the last position that the adopted summary covers."""
    if through_position <= session.summary_through_position:
        raise SummaryConflict(
            f"The summary of session {session.id} already reaches position {session.summary_through_position}, this "
            f"one only {through_position}. Load the session again and start from what it says."
        )


async def is_adopted(tx: Statements, version_id: SummaryId) -> bool:
    """Return whether this version is its session's adopted summary, which prompts show."""
    return bool(await tx.fetch(_IS_ADOPTED, version_id=version_id))


async def discard_prepared(tx: Statements, session_id: SessionId) -> bool:
    """Delete the session's prepared summary, because the one it builds on changes. Return whether there was one."""
    return bool(await tx.fetch(_DISCARD, session_id=session_id))


async def supersede(tx: Statements, session_id: SessionId) -> None:
    """Mark the adopted version as superseded, since at most one may be adopted at any moment."""
    await tx.fetch(_SUPERSEDE, session_id=session_id)


async def move_session(tx: Statements, version_id: SummaryId) -> Session:
    """Copy text, cursor and number of an adopted version to its session, and return the session.

    The owner's indexing job is queued if the session has unindexed messages. Prompts no longer show what the summary
    covers, so a search has to find it.
    """
    return session_from((await tx.fetch(_MOVE, version_id=version_id))[0])


def version_parameters(adoption: Adoption) -> dict[str, object]:
    """Return the parameters of INSERT_VERSION that an adoption contains."""
    return {
        "session_id": adoption.session_id,
        "segment_ids": list(adoption.segment_ids),
        "text": adoption.text,
        "kept_facts": kept_facts_json(adoption.kept_facts),
        "token_count": adoption.token_count,
        "through_id": adoption.through_id,
        "through_position": adoption.through_position,
        "model": adoption.model,
        "run_id": adoption.run_id,
    }
