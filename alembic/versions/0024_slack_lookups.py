"""When the bot was called into a thread, and indexes for what the Slack door asks for again and again.

Revision ID: 0024
Revises: 0023
"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

INDEXES = {
    "slack_users_looked_up": "slack_users ((coalesce(looked_up_at, '-infinity')))",
    "slack_deliveries_of_reader": """
        slack_deliveries (team_id, channel_id, reader_team_id, reader_id, message_ts desc) where run_id is not null
    """,
    "slack_events_early": "slack_events (message_ts) where early_edit is not null",
}


def upgrade() -> None:
    """Add the column and the indexes: a row for each person, and a week of messages, are built in no time."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table slack_conversations add column engaged_ts numeric")
    for name, definition in INDEXES.items():
        op.execute(f"create index {name} on {definition}")


def downgrade() -> None:
    """Drop them."""
    op.execute("set local lock_timeout = '3s'")
    for name in INDEXES:
        op.execute(f"drop index {name}")
    op.execute("alter table slack_conversations drop column engaged_ts")
