"""The state that the graph of a session's agent keeps besides the messages: one row for each session."""

from throughline.db.connection.transactions import Statements
from throughline.db.statements.rows import lease_lost, to_json
from throughline.db.statements.sql import sql
from throughline.domain.agent_graph import GraphState
from throughline.domain.basic_types import JsonObject, RunId, SessionId
from throughline.domain.run import Lease

_SAVE = sql("""
    with held as (
        select r.session_id, r.id from runs r
        where r.id = :run_id and r.fence = :fence and r.status = 'running' for share
    )
    insert into graph_states as g (session_id, run_id, state)
    select held.session_id, held.id, cast(:state as json) from held
    on conflict (session_id) do update set run_id = excluded.run_id, state = excluded.state
    returning g.session_id
""")
_LOAD = sql("select g.run_id, g.state from graph_states g where g.session_id = :session_id")


async def save_graph_state(tx: Statements, lease: Lease, state: JsonObject) -> None:
    """Replace the session's state under the run's lease. Raises LeaseLost."""
    if not await tx.fetch(_SAVE, run_id=lease.run_id, fence=lease.fence, state=to_json(state)):
        raise lease_lost(lease)


async def load_graph_state(tx: Statements, session_id: SessionId) -> GraphState | None:
    """Return the session's state, None if it has none."""
    rows = await tx.fetch(_LOAD, session_id=session_id)
    return GraphState(RunId(rows[0]["run_id"]), rows[0]["state"]) if rows else None
