"""A session's line of runs, as it stands now: a statement that has waited for a lock would see an older one.

Revision ID: 0018
Revises: 0017
"""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A volatile function reads with a fresh snapshot. In `language sql` it could be drawn into the statement."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("""
        create function session_line(wanted uuid, out queued bigint, out first_id uuid)
        language plpgsql volatile as $$
        begin
            select count(*) filter (where w.status = 'queued'), (array_agg(w.id order by w.seq))[1]
            into queued, first_id
            from runs w where w.session_id = wanted and w.status in ('queued', 'running');
        end
        $$
    """)


def downgrade() -> None:
    """Earlier versions count for themselves."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop function session_line(uuid)")
