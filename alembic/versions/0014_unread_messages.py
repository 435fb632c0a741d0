"""Sessions count the messages of runs that were cancelled in the line and have no place in the history yet.

Revision ID: 0014
Revises: 0013
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Count none: until now such messages were taken back with their runs."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table sessions add column unread_run_count integer default 0 not null")


def downgrade() -> None:
    """What has no place in the history yet stays in its run alone."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table sessions drop column unread_run_count")
