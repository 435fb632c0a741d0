"""Reading one run on behalf of its owner, alone or inside a transaction."""

from throughline.db.connection.transactions import Statements
from throughline.db.statements.rows import MESSAGE_IDS, RUN_COLUMNS, run_from, run_not_found
from throughline.db.statements.sql import sql
from throughline.domain.ids import RunId, UserId
from throughline.domain.run import Run

_GET = sql(
    "select {run_columns}, {message_ids} from runs r where r.id = :run_id and r.owner_id = :owner_id",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)


async def read_run(tx: Statements, owner_id: UserId, run_id: RunId) -> Run:
    """Return the run. Raises NotFound if it is missing or another user's."""
    rows = await tx.fetch(_GET, run_id=run_id, owner_id=owner_id)
    if not rows:
        raise run_not_found(run_id)
    return run_from(rows[0])
