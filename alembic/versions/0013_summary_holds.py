"""Who writes a summary on demand for a session, and until when.

Revision ID: 0013
Revises: 0012
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

UP = """
    alter table sessions add column summarizing_id uuid, add column summarizing_since timestamptz,
        add column summarizing_until timestamptz
"""
DOWN = """
    alter table sessions drop column summarizing_until, drop column summarizing_since, drop column summarizing_id
"""


def upgrade() -> None:
    """Add the columns, empty."""
    op.execute("set local lock_timeout = '3s'")
    op.execute(UP)


def downgrade() -> None:
    """Drop them."""
    op.execute("set local lock_timeout = '3s'")
    op.execute(DOWN)
