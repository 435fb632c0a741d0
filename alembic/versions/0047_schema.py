"""The whole schema, as db/tables and the front ends describe it: tables, indexes, functions and triggers.

What a later revision changed is created here as it was.

Until the first release other tables are changed where they are described, and databases are made anew: the revision
gets a new number, and the old one is added to UNRELEASED in db/connection/migrations.py. The release freezes this file.

Revision ID: 0047
Revises:
"""

from alembic import op
from throughline.assembly.front_ends import import_tables
from throughline.db.tables import METADATA

revision = "0047"
down_revision = None
branch_labels = None
depends_on = None

CHANGED_LATER = {
    "model_calls": (
        """
        create table model_calls (
            id uuid not null,
            owner_id uuid,
            session_id uuid,
            run_id uuid,
            agent text default '' not null,
            model text not null,
            purpose text not null,
            input_tokens integer,
            output_tokens integer,
            cached_tokens integer,
            cache_write_tokens integer,
            reasoning_tokens integer,
            cost_usd numeric,
            created_at timestamp with time zone default now() not null,
            constraint model_calls_pkey primary key (id),
            constraint model_calls_purpose_check check (purpose in ('answer', 'summary', 'embedding'))
        )
        """,
        "create index model_calls_by_owner on model_calls (owner_id, created_at)",
        "create index model_calls_by_time on model_calls using brin (created_at)",
    ),
    "run_events": (
        """
        create unlogged table run_events (
            run_id uuid not null,
            seq integer not null,
            type text not null,
            data json not null,
            created_at timestamp with time zone default now() not null,
            constraint run_events_pkey primary key (run_id, seq),
            constraint run_events_type_check check (type in (
                'run.started', 'context.compaction.started', 'context.compaction.finished', 'context.history.quoted',
                'context.memories.quoted', 'reasoning.delta', 'message.delta', 'tool.call.delta', 'tool.call',
                'tool.progress', 'tool.result', 'message.completed', 'run.waiting', 'run.completed', 'run.failed',
                'run.cancelled', 'reset'
            ))
        ) with (
            autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
            toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 1000
        )
        """,
        "comment on column run_events.data is 'an event, pointing at the message or run it shows'",
    ),
    "graph_states": (),
}
"""Statements that create the tables of this revision that later ones changed, by table; none of a later one's."""

NOTIFY_OF_JOBS = (
    """
    create function announce_job() returns trigger language plpgsql as $$
    begin
    perform pg_notify('throughline', 'j:'); return null;
    end
    $$
    """,
    """
    create trigger announce_job after insert or update of due_at on jobs for each row when (new.due_at <= now())
    execute function announce_job()
    """,
)
"""Statements that create the trigger of this revision that a later one dropped."""


def upgrade() -> None:
    """Create everything."""
    op.execute("set local lock_timeout = '3s'")
    import_tables()
    as_described = [table for name, table in METADATA.tables.items() if name not in CHANGED_LATER]
    METADATA.create_all(op.get_bind(), tables=as_described, checkfirst=False)
    for statements in (*CHANGED_LATER.values(), NOTIFY_OF_JOBS):
        for statement in statements:
            op.execute(statement)


def downgrade() -> None:
    """Drop everything, with all that is stored; db/memories.py may have made a table of its own."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop table if exists memory_embeddings")
    import_tables()
    METADATA.drop_all(op.get_bind(), checkfirst=True)
    op.execute("drop function announce_job()")
