"""Events show the arguments of tool calls while they are written, and name the messages that their parts belong to.

The runs of a session can be listed by an index.

A database that was made with today's tables has the event type and the index already.

Revision ID: 0041
Revises: 0040
"""

from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

TYPES = (
    "'run.started', 'context.compaction.started', 'context.compaction.finished', 'context.history.quoted', "
    "'reasoning.delta', 'message.delta', {call_delta}'tool.call', 'tool.result', 'message.completed', 'run.waiting', "
    "'run.completed', 'run.failed', 'run.cancelled', 'reset'"
)
_FORBID = "alter table run_events drop constraint if exists run_events_type_check"
_ALLOW = "alter table run_events add constraint run_events_type_check check (type in ({types}))"
UPGRADE = (
    _FORBID,
    _ALLOW.format(types=TYPES.format(call_delta="'tool.call.delta', ")),
    "create index if not exists runs_of_session on runs (session_id, seq, status)",
)
DOWNGRADE = (
    "drop index runs_of_session",
    _FORBID,
    # Earlier versions cannot read parts that name their message. A run's events are deleted together: readers find all
    # or none.
    """
    delete from run_events where run_id in (
        select run_id from run_events
        where type in ('reasoning.delta', 'message.delta', 'tool.call.delta', 'tool.call'))
    """,
    _ALLOW.format(types=TYPES.format(call_delta="")),
)


def upgrade() -> None:
    """Add the type and the index."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWNGRADE:
        op.execute(statement)
