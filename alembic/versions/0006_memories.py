"""Memories: short texts a user keeps, apart from every session.

Revision ID: 0006
Revises: 0005
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UP = (
    """
    create table memories (
        id uuid not null,
        user_id uuid not null,
        text text not null,
        metadata jsonb default '{}'::jsonb not null,
        terms text[] not null,
        analyzer text not null,
        created_at timestamptz default now() not null,
        updated_at timestamptz default now() not null,
        constraint memories_pkey primary key (id),
        constraint memories_text_length_check check (length(text) between 1 and 10000),
        constraint memories_user_id_fkey foreign key (user_id) references users (id)
    )
    """,
    "create index memories_newest on memories (user_id, created_at desc, id desc)",
)
DOWN = ("drop table memories",)


def upgrade() -> None:
    """Create the table."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    """Drop it, with all that is kept in it."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWN:
        op.execute(statement)
