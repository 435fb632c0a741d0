"""Slack asks for approvals and answers: deliveries of waiting runs are put aside, and know what they have asked.

A database that was made with today's tables has the columns already.

Revision ID: 0042
Revises: 0041
"""

from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

COUNTS = ("asked_wait", "asked_given", "rest_starts")
UPGRADE = (
    *(f"alter table slack_deliveries add column if not exists {name} integer not null default 0" for name in COUNTS),
    "alter table slack_parts add column if not exists call_id text",
)
DOWNGRADE = (
    "delete from slack_parts where call_id is not null",
    "alter table slack_parts drop column call_id",
    *(f"alter table slack_deliveries drop column {name}" for name in COUNTS),
)


def upgrade() -> None:
    """Add the columns."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWNGRADE:
        op.execute(statement)
