"""An edit that Slack delivers before its message: kept with the message's place until that comes or is too old.

Revision ID: 0022
Revises: 0021
"""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; rows go with the events' own retention."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table slack_events add column early_edit jsonb")


def downgrade() -> None:
    """Earlier versions would take the message for one that they have; they do not know early edits."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("delete from slack_events where early_edit is not null")
    op.execute("alter table slack_events drop column early_edit")
