"""Messages are embedded where an embedding model is set: how far each session is, and the signs of each vector.

A database that was made with today's tables has these tables already.

Revision ID: 0032
Revises: 0031
"""

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

UPGRADE = (
    """
    create table if not exists embedded_sessions (
        session_id uuid not null references sessions (id) on delete cascade,
        model text not null,
        dimensions integer not null,
        through_position integer not null,
        updated_at timestamptz not null default now(),
        primary key (session_id, model, dimensions)
    )
    """,
    """
    create table if not exists message_embeddings (
        session_id uuid not null,
        model text not null,
        dimensions integer not null,
        position integer not null,
        signs bit varying not null,
        primary key (session_id, model, dimensions, position),
        constraint message_embeddings_session_id_fkey foreign key (session_id, model, dimensions)
            references embedded_sessions on delete cascade,
        constraint message_embeddings_signs_length_check check (length(signs) = (dimensions + 3) / 4 * 4)
    ) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)
    """,
    # A trigger, so that also a process of the version before forgets what it redacts.
    """
    create function forget_embedding() returns trigger language plpgsql as $$
    begin
        delete from message_embeddings e where e.session_id = new.session_id and e.position = new.position;
        return null;
    end
    $$
    """,
    """
    create trigger redaction_forgets_embedding after insert on message_redactions
        for each row execute function forget_embedding()
    """,
)
DOWNGRADE = (
    "drop trigger redaction_forgets_embedding on message_redactions",
    "drop function forget_embedding()",
    "drop table message_embeddings",
    "drop table embedded_sessions",
)


def upgrade() -> None:
    """Add the tables."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWNGRADE:
        op.execute(statement)
