"""The index that history is searched with: terms by session, in blocks of messages.

Revision ID: 0005
Revises: 0004
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

UP = (
    """
    create table search_blocks (
        session_id uuid not null,
        from_position integer not null,
        through_position integer not null,
        term_count bigint not null,
        analyzer text not null,
        created_at timestamptz default now() not null,
        constraint search_blocks_pkey primary key (session_id, from_position),
        constraint search_blocks_positions_check
            check (from_position > 0 and through_position between from_position and from_position + 65535),
        constraint search_blocks_session_id_fkey foreign key (session_id) references sessions (id)
    )
    """,
    # No foreign key: it would be checked for every term. A block's terms are written and deleted with the block.
    """
    create table search_terms (
        session_id uuid not null,
        term text collate "C" not null,
        from_position integer not null,
        entries integer[] not null,
        constraint search_terms_pkey primary key (session_id, term, from_position)
    )
    """,
)
DOWN = ("drop table search_terms, search_blocks",)


def upgrade() -> None:
    """Make room for the index; what is stored already is indexed in the background, or when it is first searched."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    """Drop the index; it can be made again from the messages."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWN:
        op.execute(statement)
