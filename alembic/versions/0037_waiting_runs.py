"""A run may wait for something from outside: a client's tool result, an approval, or an answer.

A waiting run keeps its position in its session's queue, and what its provider wants back of its reasoning.

A database that was made with today's tables has the columns, the status and the event type already.

Revision ID: 0037
Revises: 0035
"""

from alembic import op

revision = "0037"
down_revision = "0035"
branch_labels = None
depends_on = None

TYPES = (
    "'run.started', 'context.compaction.started', 'context.compaction.finished', 'context.history.quoted', "
    "'reasoning.delta', 'message.delta', 'tool.call', 'tool.result', 'message.completed', {waiting}'run.completed', "
    "'run.failed', 'run.cancelled', 'reset'"
)
ENDED = "'succeeded', 'failed', 'cancelled'"
_OLD, _NEW = "'queued', 'running'", "'queued', 'running', 'waiting'"
_LINE = """
    create or replace function session_line(wanted uuid, out queued bigint, out first_id uuid)
    language plpgsql volatile as $$
    begin
        select count(*) filter (where w.status = 'queued'), (array_agg(w.id order by w.seq))[1]
        into queued, first_id
        from runs w where w.session_id = wanted and w.status in ({unfinished});
    end
    $$
"""
_TRIGGER = """
    create trigger run_end_forgets_returned_reasoning after update of status on runs
        for each row when (new.status not in ({unfinished})) execute function forget_returned_reasoning()
"""


def _of_unfinished(unfinished: str) -> tuple[str, ...]:
    """Return the statements that make everything anew that depends on which runs are unfinished."""
    return (
        "alter table runs drop constraint if exists runs_status_check",
        f"alter table runs add constraint runs_status_check check (status in ({unfinished}, {ENDED}))",
        "drop index if exists runs_line",
        f"create index runs_line on runs (session_id, seq) where status in ({unfinished})",
        _LINE.format(unfinished=unfinished),
        "drop trigger run_end_forgets_returned_reasoning on runs",
        _TRIGGER.format(unfinished=unfinished),
    )


def _of_types(types: str) -> tuple[str, ...]:
    return (
        "alter table run_events drop constraint if exists run_events_type_check",
        f"alter table run_events add constraint run_events_type_check check (type in ({types}))",
    )


UPGRADE = (
    "alter table runs add column if not exists wait json",
    "alter table runs add column if not exists waits_until timestamptz",
    "alter table runs add column if not exists wait_count integer not null default 0",
    *_of_unfinished(_NEW),
    "create index if not exists runs_expiring on runs (waits_until) where status = 'waiting'",
    *_of_types(TYPES.format(waiting="'run.waiting', ")),
)
DOWNGRADE = (
    # The version before cannot resume them. Their messages are kept.
    "update runs set status = 'cancelled', finished_at = now() where status = 'waiting'",
    "drop index runs_expiring",
    *_of_unfinished(_OLD),
    "alter table runs drop column wait",
    "alter table runs drop column waits_until",
    "alter table runs drop column wait_count",
    # A run's events are deleted together: readers find all or none.
    "delete from run_events where run_id in (select run_id from run_events where type = 'run.waiting')",
    *_of_types(TYPES.format(waiting="")),
)


def upgrade() -> None:
    """Add the columns, the status and the type."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWNGRADE:
        op.execute(statement)
