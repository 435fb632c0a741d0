"""Adoption of a summary: version, text and cursor change in one transaction."""

from throughline.db.connection.transactions import Statements
from throughline.db.side_jobs import ENQUEUE_INDEXING
from throughline.db.statements.locks import hold_lease, lock_session, summary_moved
from throughline.db.statements.rows import SESSION_COLUMNS, session_from
from throughline.db.statements.sql import sql
from throughline.db.summaries.segments import VERSION_COLUMNS, check_segments, kept_facts_json, version_from
from throughline.domain.basic_types import SessionId, SummaryId, UserId
from throughline.domain.errors import InvalidInput, NotFound, SummaryConflict
from throughline.domain.run import Lease
from throughline.domain.session import Session
from throughline.domain.summary import Adoption, SummaryState, SummaryVersion

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


# Prepared summaries: written in advance on top of the adopted one, and adopted later.
#
# They are discarded if another summary is adopted first.

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
