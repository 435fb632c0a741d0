"""Memories count their texts, so that a vector made from an earlier one is told from the present one's.

The vectors' own table needs pgvector, which not every server has: db/memories/vector_table.py makes it where a
model for them is set. Here it only goes on the way down.

Revision ID: 0011
Revises: 0010
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

UP = ("alter table memories add column text_version integer not null default 0",)
DOWN = ("drop table if exists memory_embeddings", "alter table memories drop column text_version")


def upgrade() -> None:
    """Add the column."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    """Drop it, and the vectors."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWN:
        op.execute(statement)
