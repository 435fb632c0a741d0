"""Sessions with messages that are not in the search index are marked, so that they are found without the others.

A trigger sets the mark, so that every way of storing messages does, also that of processes of the version before.
Sessions that exist already are marked; the indexing jobs look at each of them once.
A database that was made with today's tables has the column and the indexes already.

Revision ID: 0031
Revises: 0030
"""

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

UPGRADE = (
    "alter table sessions add column if not exists unindexed_since timestamptz default now()",
    "alter table sessions alter column unindexed_since drop default",
    """
    create index if not exists sessions_unindexed on sessions (owner_id, unindexed_since)
        where unindexed_since is not null
    """,
    "create index if not exists search_blocks_analyzer_idx on search_blocks (analyzer)",
    """
    create function mark_unindexed() returns trigger language plpgsql as $$
    begin
        new.unindexed_since := now();
        return new;
    end
    $$
    """,
    """
    create trigger sessions_unindexed before update of message_count, redaction_count on sessions
        for each row when (new.unindexed_since is null
            and (new.message_count > old.message_count or new.redaction_count > old.redaction_count))
        execute function mark_unindexed()
    """,
)
DOWNGRADE = (
    "drop trigger sessions_unindexed on sessions",
    "drop function mark_unindexed()",
    "drop index search_blocks_analyzer_idx",
    "alter table sessions drop column unindexed_since",
)


def upgrade() -> None:
    """Add the column, its trigger and the indexes."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWNGRADE:
        op.execute(statement)
