"""The row of an API key stays when its user is erased, without the user.

A database that was made with today's tables has it so already.

Revision ID: 0044
Revises: 0043
"""

from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Allow keys without a user."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table api_keys alter column user_id drop not null")


def downgrade() -> None:
    """Delete keys without a user."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("delete from api_keys where user_id is null")
    op.execute("alter table api_keys alter column user_id set not null")
