"""Copies of messages are linked to their originals, so that redaction and erasure reach them.

A database that was made with today's tables has the table already.

Revision ID: 0043
Revises: 0042
"""

from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

UPGRADE = (
    """
    create table if not exists message_copies (
        message_id uuid not null constraint message_copies_message_id_fkey references messages (id) on delete cascade,
        original_session_id uuid not null,
        original_position integer not null,
        is_kept boolean not null default false,
        primary key (message_id, original_session_id, original_position)
    )
    """,
    """
    create index if not exists message_copies_of_original on message_copies (original_session_id, original_position)
    """,
)


def upgrade() -> None:
    """Create the table."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Drop the table."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop table message_copies")
