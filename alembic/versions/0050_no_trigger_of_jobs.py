"""Drop the trigger that notified of side jobs inside transactions; the notifier does so after the commit.

Revision ID: 0050
Revises: 0049
"""

from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the trigger and its function. Processes of an older version then find side jobs by polling."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop trigger announce_job on jobs")
    op.execute("drop function announce_job()")


def downgrade() -> None:
    """Create both again."""
    op.execute("set local lock_timeout = '3s'")
    op.execute(
        "create function announce_job() returns trigger language plpgsql as $$\nbegin\n"
        "perform pg_notify('throughline', 'j:'); return null;\nend\n$$"
    )
    op.execute(
        "create trigger announce_job after insert or update of due_at on jobs for each row "
        "when (new.due_at <= now()) execute function announce_job()"
    )
