"""The owner of a run is known by its session: a foreign key made the erasure of a user search all runs.

A database that was made with today's tables has none.

Revision ID: 0045
Revises: 0044
"""

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the foreign key."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table runs drop constraint if exists runs_owner_id_fkey")


def downgrade() -> None:
    """Add the foreign key; runs are checked without locking out writes first."""
    op.execute("set local lock_timeout = '3s'")
    op.execute(
        "alter table runs add constraint runs_owner_id_fkey foreign key (owner_id) references users (id) not valid"
    )
