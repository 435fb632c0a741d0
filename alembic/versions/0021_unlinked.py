"""A Slack user whose link was ended by hand: a guest whom only a code makes a user again, and no e-mail address.

Revision ID: 0021
Revises: 0020
"""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

NAME = "slack_users_linked_by_check"


def upgrade() -> None:
    """Allow the word. There is a row for each person of Slack, so that the check is done in no time."""
    op.execute("set local lock_timeout = '3s'")
    op.execute(f"alter table slack_users drop constraint {NAME}")
    op.execute(
        f"alter table slack_users add constraint {NAME} check (linked_by in ('guest', 'email', 'code', 'unlinked'))"
    )


def downgrade() -> None:
    """Earlier versions know a guest only."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("update slack_users set linked_by = 'guest' where linked_by = 'unlinked'")
    op.execute(f"alter table slack_users drop constraint {NAME}")
    op.execute(f"alter table slack_users add constraint {NAME} check (linked_by in ('guest', 'email', 'code'))")
