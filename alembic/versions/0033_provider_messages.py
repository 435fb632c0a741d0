"""A run keeps what the model's provider said when its call failed, and a key may have the scope `operate` to read it.

A database that was made with today's tables has both already.

Revision ID: 0033
Revises: 0032
"""

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_ALLOW = """
    alter table api_keys add constraint api_keys_scopes_check check (scopes <@ array[{scopes}]::text[])
"""
_FORBID = "alter table api_keys drop constraint if exists api_keys_scopes_check"


def upgrade() -> None:
    """Add the column and the scope."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table runs add column if not exists provider_message text")
    op.execute(_FORBID)
    op.execute(_ALLOW.format(scopes="'read', 'write', 'act_as', 'operate'"))


def downgrade() -> None:
    """Undo it. Keys lose the scope."""
    op.execute("set local lock_timeout = '3s'")
    op.execute(_FORBID)
    op.execute("update api_keys set scopes = array_remove(scopes, 'operate')")
    op.execute(_ALLOW.format(scopes="'read', 'write', 'act_as'"))
    op.execute("alter table runs drop column if exists provider_message")
