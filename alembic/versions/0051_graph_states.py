"""Add the table of what agents' own graphs keep besides the messages, and allow events of types that are new.

Revision ID: 0051
Revises: 0050
"""

from alembic import op
from throughline.db.tables import METADATA

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None

KNOWN = (
    *("run.started", "context.compaction.started", "context.compaction.finished", "context.history.quoted"),
    *("context.memories.quoted", "reasoning.delta", "message.delta", "tool.call.delta", "tool.call", "tool.progress"),
    *("tool.result", "message.completed", "run.waiting", "run.completed", "run.failed", "run.cancelled", "reset"),
)
"""Types of events before this revision."""

DROP = """
    do $$
    declare part regclass;
    begin
        alter table run_events drop constraint if exists run_events_type_check;
        for part in select inhrelid from pg_inherits where inhparent = 'run_events'::regclass loop
            execute format('alter table %s drop constraint if exists run_events_type_check', part);
        end loop;
    end
    $$
"""
"""Statement that drops the constraint of the table, and of partitions that had it before they were attached."""


def upgrade() -> None:
    """Create the table and drop the constraint; no row is read."""
    op.execute("set local lock_timeout = '3s'")
    METADATA.create_all(op.get_bind(), tables=[METADATA.tables["graph_states"]], checkfirst=False)
    op.execute(DROP)


def downgrade() -> None:
    """Drop the table, with the states of waiting turns, and events that older versions do not know."""
    op.execute("set local lock_timeout = '3s'")
    known = ", ".join(repr(name) for name in KNOWN)
    op.execute(f"delete from run_events where type not in ({known})")  # noqa: S608  # names of this file
    op.execute(f"alter table run_events add constraint run_events_type_check check (type in ({known}))")
    op.execute("drop table graph_states")
