"""Columns take the names that the code and the documents use: skipped messages, summary segments, heartbeats.

A database that was made with today's tables has these names already. Processes of an earlier development version
cannot use the new names: stop them before the upgrade. No release had the old names.

Revision ID: 0030
Revises: 0029
"""

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

COLUMNS = (
    ("runs", "is_unread", "is_skipped"),
    ("sessions", "unread_run_count", "skipped_run_count"),
    ("summary_versions", "stretch_ids", "segment_ids"),
    ("processes", "beat_at", "heartbeat_at"),
)
RENAME = """
    do $$
    begin
        if exists (
            select from information_schema.columns
            where table_schema = current_schema() and table_name = '{table}' and column_name = '{old}'
        ) then
            alter table {table} rename column {old} to {new};
        end if;
    end $$
"""


def upgrade() -> None:
    """Rename the columns and the index."""
    op.execute("set local lock_timeout = '3s'")
    for table, old, new in COLUMNS:
        op.execute(RENAME.format(table=table, old=old, new=new))
    op.execute("alter index if exists runs_unread rename to runs_skipped")


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    for table, old, new in COLUMNS:
        op.execute(RENAME.format(table=table, old=new, new=old))
    op.execute("alter index if exists runs_skipped rename to runs_unread")
