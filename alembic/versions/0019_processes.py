"""The processes there are: each notes every few seconds that it is there, whether it has work or not.

Revision ID: 0019
Revises: 0018
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A few rows that change all day: in place (HOT) where the page has room, and vacuumed by their number.

    Unlogged: an idle service waits for no disk, and after a crash each process is back with its next beat.
    """
    op.execute("set local lock_timeout = '3s'")
    op.execute("""
        create unlogged table processes (
            id uuid not null,
            kind text not null,
            name text not null,
            version text not null,
            started_at timestamptz not null,
            beat_at timestamptz default now() not null,
            concurrency integer not null,
            open_turns integer not null,
            jobs_in_hand integer not null,
            is_claiming boolean not null,
            is_listening boolean not null,
            constraint processes_pkey primary key (id),
            constraint processes_kind_check check (kind in ('serve', 'worker', 'slack', 'command'))
        ) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500)
    """)


def downgrade() -> None:
    """Take it away."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop table processes")
