"""A stretch is found by the request it came from, so that a user's other sessions need not pay for it again.

Stretches that are there already have no such hash, and are found in their own session alone.
A database that was made with today's tables has the column already.

Revision ID: 0029
Revises: 0028
"""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and its index."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table summaries add column if not exists request_hash text")
    op.execute("""
        create index if not exists summaries_requested on summaries (request_hash) where request_hash is not null
    """)


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop index if exists summaries_requested")
    op.execute("alter table summaries drop column if exists request_hash")
