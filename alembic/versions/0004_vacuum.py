"""How often the tables that change all the time are vacuumed.

Revision ID: 0004
Revises: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

UP = (
    # A turn leaves one dead row here, and dead entries at the front of the indexes that the claim loop walks every
    # second; a fifth of all runs that ever were, the default, would be far too late.
    "alter table runs set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500)",
    # Retention deletes a small share at a time, always the oldest, and each time begins to look where the last one
    # ended: that front has to be cleared soon. Long events lie in the side table, which needs the same.
    """
    alter table run_events set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 1000)
    """,
    # Counters change with every message, in place (HOT) where the page has room: fillfactor 70 leaves it. The end of a
    # turn moves `updated_at`, which is indexed: one dead index entry a turn.
    "alter table sessions set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200)",
)

DOWN = (
    "alter table sessions reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)",
    """
    alter table run_events reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
        toast.autovacuum_vacuum_scale_factor, toast.autovacuum_vacuum_threshold)
    """,
    "alter table runs reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)",
)


def upgrade() -> None:
    """Vacuum by small shares."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    """Go back to the server's own settings."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWN:
        op.execute(statement)
