"""Partition model_calls by month; stored rows stay where they are, in the partition of the time until now.

The range of ids replaces the index by time.

Revision ID: 0049
Revises: 0048
"""

from alembic import op
from throughline.db.tables.move_to_partitions import Move, partition, unpartition
from throughline.db.tables.partitions import Partitioned, PartitionPeriod

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None

MOVE = Move(
    Partitioned("model_calls", "id", PartitionPeriod.MONTH),
    primary_key="id",
    indexes={"model_calls_by_owner": "(owner_id, created_at)"},
    dropped_indexes={"model_calls_by_time": "using brin (created_at)"},
)


def upgrade() -> None:
    """Make the table a partition of a new one."""
    partition(op.get_context(), MOVE)


def downgrade() -> None:
    """Copy all rows back into one table."""
    unpartition(op.get_bind(), MOVE)
