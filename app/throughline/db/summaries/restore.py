"""Return to an earlier version of a session's summary, as a new version; only this and redaction move cursors back."""

from throughline.db.connection.transactions import Statements
from throughline.db.statements.locks import lock_session
from throughline.db.statements.rows import SESSION_COLUMNS, session_from
from throughline.db.statements.sql import sql
from throughline.db.statements.summary_rows import VERSION_COLUMNS, version_from
from throughline.db.summaries.adopt import discard_prepared, is_adopted, move_session, supersede
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.ids import SessionId, SummaryId, UserId
from throughline.domain.session import Session
from throughline.domain.summary import SummaryState, SummaryVersion

_FIND = sql(
    """
    select {version_columns} from summary_versions v join sessions s on s.id = v.session_id
    where v.id = :summary_id and s.id = :session_id and s.owner_id = :owner_id
""",
    version_columns=VERSION_COLUMNS,
)
_IS_SAME = sql("""
    select 1 as found from summary_versions v join summary_versions a on a.session_id = v.session_id
    where v.id = :summary_id and v.session_id = :session_id and a.state = 'adopted'
        and a.through_id = v.through_id and a.segment_ids = v.segment_ids and a.text = v.text
        and a.kept_facts = v.kept_facts
""")
_COPY = sql("""
    insert into summary_versions (id, session_id, version, base_version, state, segment_ids, text, kept_facts,
        token_count, through_id, through_position, model, run_id)
    select :version_id, v.session_id, cast(:base_version as integer) + 1, :base_version, 'adopted', v.segment_ids,
        v.text, v.kept_facts, v.token_count, v.through_id, v.through_position, v.model, v.run_id
    from summary_versions v where v.id = :summary_id
""")
_LEAVE = sql("""
    update sessions s set conversation_summary = '', summary_through_id = null, summary_through_position = 0,
        summary_tokens = 0, summary_version = s.summary_version + 1
    where s.id = :session_id
""")
_BEGIN_VIEW = sql(
    """
    update sessions s set view_state = jsonb_build_object('skipped_through_position', s.message_count,
        'restored_at_position', s.message_count, 'summary_position', s.summary_through_position)
    where s.id = :session_id returning {session_columns}
""",
    session_columns=SESSION_COLUMNS,
)


async def restore(
    tx: Statements, owner_id: UserId, session_id: SessionId, summary_id: SummaryId, version_id: SummaryId
) -> Session:
    """Adopt the version `summary_id` again, as the new version `version_id`; prepared versions are discarded.

    The view state is reset, since it belongs to a summary with another cursor. The growth that triggers a compaction is
    measured from now on. No summary is written before the conversation has grown, even above the threshold. So the next
    message does not undo the user's restore. Messages that do not fit meanwhile are left out of the prompt. Nothing
    changes if the same content is adopted already.

    Raises NotFound, and InvalidInput for a version that was never adopted.
    """
    session = await lock_session(tx, session_id, owner_id)
    if await is_adopted(tx, version_id):
        return session
    wanted = await _find(tx, session, summary_id)
    if wanted.state is SummaryState.ADOPTED or await tx.fetch(_IS_SAME, summary_id=summary_id, session_id=session_id):
        return session
    await discard_prepared(tx, session_id)
    await supersede(tx, session_id)
    await tx.fetch(_COPY, version_id=version_id, summary_id=summary_id, base_version=session.summary_version)
    await move_session(tx, version_id)
    return session_from((await tx.fetch(_BEGIN_VIEW, session_id=session_id))[0])


async def restore_none(tx: Statements, owner_id: UserId, session_id: SessionId) -> Session:
    """Remove the session's summary, so that prompts show its messages again. The stored versions are kept.

    The session's `summary_version` grows, and the view state is reset as by `restore`. A prepared version is discarded.
    Nothing changes if the session has neither summary. Raises NotFound.
    """
    session = await lock_session(tx, session_id, owner_id)
    was_prepared = await discard_prepared(tx, session_id)
    if session.summary_through_position == 0 and not was_prepared:
        return session
    if session.summary_through_position > 0:
        await supersede(tx, session_id)
        await tx.fetch(_LEAVE, session_id=session_id)
    return session_from((await tx.fetch(_BEGIN_VIEW, session_id=session_id))[0])


async def _find(tx: Statements, session: Session, summary_id: SummaryId) -> SummaryVersion:
    rows = await tx.fetch(_FIND, summary_id=summary_id, session_id=session.id, owner_id=session.owner_id)
    if not rows:
        raise NotFound(f"There is no summary {summary_id} of session {session.id}.")
    version = version_from(rows[0])
    if version.state is SummaryState.PREPARED:
        raise InvalidInput(
            f"The summary {summary_id} is prepared and was never in use: there is nothing to go back to. "
            "Name one that has a version number.",
            field="summary_id",
        )
    return version
