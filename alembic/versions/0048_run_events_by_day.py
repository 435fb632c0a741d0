"""Partition run_events by day; stored rows stay where they are, in the partition of the time until now.

Revision ID: 0048
Revises: 0047
"""

from alembic import op
from throughline.db.tables.move_to_partitions import Move, partition, unpartition
from throughline.db.tables.partitions import Partitioned, PartitionPeriod

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None

STORAGE = {
    "autovacuum_vacuum_scale_factor": 0.02,
    "autovacuum_vacuum_threshold": 1_000,
    "toast.autovacuum_vacuum_scale_factor": 0.02,
    "toast.autovacuum_vacuum_threshold": 1_000,
}
MOVE = Move(
    Partitioned("run_events", "run_id", PartitionPeriod.DAY, is_unlogged=True, storage=STORAGE),
    primary_key="run_id, seq",
)


def upgrade() -> None:
    """Make the table a partition of a new one."""
    partition(op.get_context(), MOVE)


def downgrade() -> None:
    """Copy all rows back into one table."""
    unpartition(op.get_bind(), MOVE)
