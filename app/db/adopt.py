"""Adopting a summary: stretch, version and cursor change together, or not at all."""

from app.db.append import lease_lost
from app.db.new_ids import new_id
from app.db.rows import SESSION_COLUMNS, session_from
from app.db.sql import sql
from app.db.transactions import Statements
from app.domain.errors import SummaryConflict
from app.domain.run import Lease
from app.domain.session import Session
from app.domain.summary import Adoption

_ADOPT = sql(
    """
    with held as (
        select r.id from runs r where r.id = :run_id and r.fence = :fence and r.status = 'running' for share
    ), moved as (
        update sessions s set conversation_summary = :text, summary_through_id = :through_id,
            summary_through_position = :through_position, summary_version = s.summary_version + 1,
            summary_tokens = :token_count
        where s.id = :session_id and s.summary_version = :expected_version
            and s.summary_through_position < :through_position
            and (not :is_leased or exists (select 1 from held))
            and exists (select 1 from messages m where m.session_id = :session_id and m.id = :through_id
                and m.position = :through_position)
        returning {session_columns}
    ), stretch as (
        insert into summaries (id, session_id, from_position, through_position, through_id, text, token_count, model,
            prompt_version, read_hash, input_tokens, output_tokens, duration_seconds)
        select :stretch_id, moved.id, :from_position, :through_position, :through_id, :stretch_text, :stretch_tokens,
            :model, :prompt_version, :read_hash, :input_tokens, :output_tokens, :duration_seconds
        from moved
    ), superseded as (
        update summary_versions v set state = 'superseded' from moved
        where v.session_id = moved.id and v.state = 'adopted' returning 1
    ), version as (
        insert into summary_versions (id, session_id, version, state, stretch_ids, text, token_count, through_id,
            through_position, model)
        select :version_id, moved.id, moved.summary_version, 'adopted',
            array_append(coalesce((select v.stretch_ids from summary_versions v
                where v.session_id = moved.id and v.state = 'adopted'), '{{}}'), cast(:stretch_id as uuid)),
            :text, :token_count, :through_id, :through_position, :model
        from moved where (select count(*) from superseded) >= 0
    )
    select (select count(*) from held) as held, moved.* from (select 1) as one left join moved on true
""",
    session_columns=SESSION_COLUMNS,
)


async def adopt_summary(tx: Statements, adoption: Adoption, lease: Lease | None) -> Session:
    """Store the stretch and a new version, and move the cursor, if the session's version is the expected one.

    The cursor moves forward only, and only to a message of the session. `superseded` is counted so that the old
    version steps back before the new one is inserted: at most one may be adopted at any moment.
    Raises SummaryConflict, and LeaseLost where a lease is given and gone.
    """
    stretch = adoption.stretch
    rows = await tx.fetch(
        _ADOPT,
        run_id=None if lease is None else lease.run_id,
        fence=None if lease is None else lease.fence,
        is_leased=lease is not None,
        session_id=adoption.session_id,
        expected_version=adoption.expected_version,
        text=adoption.text,
        token_count=adoption.token_count,
        version_id=new_id(),
        stretch_id=new_id(),
        from_position=stretch.from_position,
        through_position=stretch.through_position,
        through_id=stretch.through_id,
        stretch_text=stretch.text,
        stretch_tokens=stretch.token_count,
        model=stretch.model,
        prompt_version=stretch.prompt_version,
        read_hash=stretch.read_hash,
        input_tokens=stretch.input_tokens,
        output_tokens=stretch.output_tokens,
        duration_seconds=stretch.duration_seconds,
    )
    if rows[0]["id"] is not None:
        return session_from(rows[0])
    if lease is not None and rows[0]["held"] == 0:
        raise lease_lost(lease)
    raise SummaryConflict(
        f"The summary of session {adoption.session_id} is no longer at version {adoption.expected_version}, or already "
        f"reaches position {stretch.through_position}. Load the session again and start from what it says."
    )
