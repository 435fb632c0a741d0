"""Short-lived access tokens, made by API keys for browsers.

A database that was made with today's tables has the table already.

Revision ID: 0040
Revises: 0039
"""

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

UPGRADE = (
    """
    create table if not exists access_tokens (
        id uuid not null primary key,
        key_id uuid not null references api_keys (id) on delete cascade,
        user_id uuid not null references users (id) on delete cascade,
        secret_hash bytea not null,
        scopes text[] not null,
        session_ids uuid[],
        created_at timestamptz not null default now(),
        expires_at timestamptz not null,
        constraint access_tokens_secret_hash_key unique (secret_hash),
        constraint access_tokens_secret_hash_length_check check (octet_length(secret_hash) = 32),
        constraint access_tokens_scopes_check check (scopes <@ array['read', 'write']::text[])
    )
    """,
    "create index if not exists access_tokens_key_id_idx on access_tokens (key_id)",
    "create index if not exists access_tokens_user_id_idx on access_tokens (user_id)",
    "create index if not exists access_tokens_expires_at_idx on access_tokens (expires_at)",
)


def upgrade() -> None:
    """Add the table."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop table access_tokens")
