"""Run events point at the messages they show. Earlier versions of the service do not understand such rows.

No column changes. The revision makes processes of earlier versions not ready, and a downgrade removes the rows: what an
ended run told is then made up from its messages, as after any loss of events.

Revision ID: 0017
Revises: 0016
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Say what the rows hold from now on; those that are there are still read."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("comment on column run_events.data is 'an event, pointing at the message or run it shows'")


def downgrade() -> None:
    """Remove all rows: they may point at messages."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("delete from run_events")
    op.execute("comment on column run_events.data is null")
