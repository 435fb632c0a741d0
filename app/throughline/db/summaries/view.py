"""The view state of a session: kept with it, as long as its summary is the one the state was made on."""

from throughline.db.connection.transactions import Statements
from throughline.db.statements.rows import lease_lost, to_json
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId
from throughline.domain.json_types import JsonObject
from throughline.domain.run import Lease

_SAVE = sql("""
    with held as (
        select r.id from runs r
        where r.id = :run_id and r.session_id = :session_id and r.fence = :fence and r.status = 'running' for share
    ), saved as (
        update sessions s set view_state = cast(:view_state as jsonb)
        where s.id = :session_id and s.summary_version = :expected_version
            and (not :is_leased or exists (select 1 from held))
        returning s.id
    )
    select (select count(*) from held) as held, (select count(*) from saved) as saved
""")

_SAVE_SKIPPED = sql("""
    update sessions s
    set view_state = s.view_state || jsonb_build_object('skipped_through_position', cast(:through_position as bigint))
    where s.id = :session_id and s.summary_version = :expected_version
""")


async def save_view(
    tx: Statements, session_id: SessionId, view_state: JsonObject, expected_version: int, lease: Lease | None
) -> bool:
    """Store the view state; False (nothing written) where the summary changed meanwhile. Raises LeaseLost."""
    rows = await tx.fetch(
        _SAVE,
        run_id=None if lease is None else lease.run_id,
        fence=None if lease is None else lease.fence,
        is_leased=lease is not None,
        session_id=session_id,
        view_state=to_json(view_state),
        expected_version=expected_version,
    )
    if lease is not None and rows[0]["held"] == 0:
        raise lease_lost(lease)
    return bool(rows[0]["saved"])


async def save_skipped(tx: Statements, session_id: SessionId, through_position: int, expected_version: int) -> None:
    """Note that a summary up to there was not worth it: a turn that runs may be changing the rest of the view state."""
    await tx.fetch(
        _SAVE_SKIPPED, session_id=session_id, through_position=through_position, expected_version=expected_version
    )
