"""Indexes for claiming by owner: who waits, who is served, and since when.

Revision ID: 0012
Revises: 0011
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

UP = (
    "create index runs_waiting on runs (owner_id, seq) where status = 'queued'",
    "create index runs_held on runs (owner_id) where status = 'running'",
    # The newest start of an owner's runs decides between owners who have equally many running.
    "create index runs_served on runs (owner_id, started_at) where started_at is not null",
    "drop index runs_claim",
)
DOWN = (
    "create index runs_claim on runs (seq) where status in ('queued', 'running')",
    "drop index runs_served",
    "drop index runs_held",
    "drop index runs_waiting",
)


def upgrade() -> None:
    """Find what waits by owner."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    """Find what waits by its age alone."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWN:
        op.execute(statement)
