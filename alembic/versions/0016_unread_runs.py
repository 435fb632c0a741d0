"""Runs whose message has no place in the history yet are marked, so that they are found without reading all others.

Revision ID: 0016
Revises: 0015
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Mark none: what an earlier version left so stays in its run."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table runs add column is_unread boolean default false not null")
    op.execute("create index runs_unread on runs (session_id, seq) where is_unread")


def downgrade() -> None:
    """Take the mark away."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop index runs_unread")
    op.execute("alter table runs drop column is_unread")
