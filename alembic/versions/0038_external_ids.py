"""Sessions have an id of the caller's, unique for each owner, and are found by what their metadata contain.

Most sessions have no metadata, and each turn changes the session's row: the index of metadata leaves them out.
A database that was made with today's tables has the column and the indexes already.

Revision ID: 0038
Revises: 0037
"""

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

UPGRADE = (
    """
    alter table sessions add column if not exists external_id text
        constraint sessions_external_id_length_check check (length(external_id) between 1 and 255)
    """,
    """
    create unique index if not exists sessions_external_id on sessions (owner_id, external_id)
        where external_id is not null
    """,
    """
    create index if not exists sessions_metadata on sessions using gin (metadata jsonb_path_ops)
        where metadata <> '{}'::jsonb
    """,
)
DOWNGRADE = (
    "drop index sessions_metadata",
    "alter table sessions drop column external_id",
)


def upgrade() -> None:
    """Add the column and the indexes."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWNGRADE:
        op.execute(statement)
