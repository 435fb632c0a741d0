"""Columns take the names that the code and the documents use: skipped messages, summary segments, heartbeats.

A database that was made with today's tables has these names already. Processes of an earlier development version
cannot use the new names and would lose the turns that they start, so the upgrade is refused while one is running. No
release had the old names.

Revision ID: 0030
Revises: 0029
"""

from sqlalchemy import text

from alembic import op
from throughline.domain.errors import DatabaseUnusable

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
RUNNING = text("""
    select format('%s (%s)', name, kind) from processes where beat_at > now() - interval '15 seconds' order by 1
""")
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
    """Rename the columns and the index. Raises DatabaseUnusable while a process with the old names is running."""
    op.execute("set local lock_timeout = '3s'")
    _refuse_beside_running_processes()
    for table, old, new in COLUMNS:
        op.execute(RENAME.format(table=table, old=old, new=new))
    op.execute("alter index if exists runs_unread rename to runs_skipped")


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    for table, old, new in COLUMNS:
        op.execute(RENAME.format(table=table, old=new, new=old))
    op.execute("alter index if exists runs_skipped rename to runs_unread")


def _refuse_beside_running_processes() -> None:
    connection = op.get_bind()
    has_old_names = connection.execute(
        text(
            "select exists (select from information_schema.columns where table_schema = current_schema() "
            "and table_name = 'processes' and column_name = 'beat_at')"
        )
    )
    if has_old_names.scalar_one() and (running := connection.execute(RUNNING).scalars().all()):
        raise DatabaseUnusable(
            "The upgrade to schema revision 0030 renames columns that running processes use: "
            f"{', '.join(running)}. Stop them, then try again (after a crash, 15 seconds later)."
        )
