"""Sessions that expire: those of requests that bring their whole conversation and keep nothing.

A database that was made with today's tables has the column already.

Revision ID: 0039
Revises: 0038
"""

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

UPGRADE = (
    "alter table sessions add column if not exists expires_at timestamptz",
    "create index if not exists sessions_expiring on sessions (expires_at) where expires_at is not null",
)
DOWNGRADE = ("drop index sessions_expiring", "alter table sessions drop column expires_at")


def upgrade() -> None:
    """Add the column and its index."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWNGRADE:
        op.execute(statement)
