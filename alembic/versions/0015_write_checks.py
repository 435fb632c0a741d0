"""A row that readiness writes to: a server whose disk is full still answers questions.

Revision ID: 0015
Revises: 0014
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, with room for its one row."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("""
        create table write_checks (
            is_only boolean not null,
            checked_at timestamptz default now() not null,
            constraint write_checks_pkey primary key (is_only),
            constraint write_checks_is_only_check check (is_only)
        )
    """)


def downgrade() -> None:
    """Take it away."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop table write_checks")
