"""A session keeps what every summary of it has to keep, in its user's words.

A database that was made with today's tables has this column already.

Revision ID: 0027
Revises: 0026
"""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table sessions add column if not exists summary_instructions text not null default ''")


def downgrade() -> None:
    """Undo it; the wishes are lost."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table sessions drop column if exists summary_instructions")
