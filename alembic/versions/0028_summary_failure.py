"""A session keeps why the last attempt at a summary failed.

A database that was made with today's tables has these columns already.

Revision ID: 0028
Revises: 0027
"""

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table sessions add column if not exists summary_failure text not null default ''")
    op.execute("alter table sessions add column if not exists summary_failed_at timestamptz")


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table sessions drop column if exists summary_failed_at")
    op.execute("alter table sessions drop column if exists summary_failure")
