"""The reasoning before an assistant's message is stored apart from it, and events show it.

What a provider wants back of it is stored until the run ends.

A database that was made with today's tables has the tables and the event type already.

Revision ID: 0035
Revises: 0034
"""

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

TYPES = (
    "'run.started', 'context.compaction.started', 'context.compaction.finished', 'context.history.quoted', "
    "{reasoning}'message.delta', 'tool.call', 'tool.result', 'message.completed', 'run.completed', 'run.failed', "
    "'run.cancelled', 'reset'"
)
_FORBID = "alter table run_events drop constraint if exists run_events_type_check"
_ALLOW = "alter table run_events add constraint run_events_type_check check (type in ({types}))"
UPGRADE = (
    """
    create table if not exists message_reasoning (
        message_id uuid not null primary key references messages (id) on delete cascade,
        text text not null,
        is_shown boolean not null
    )
    """,
    """
    create table if not exists returned_reasoning (
        run_id uuid not null references runs (id) on delete cascade,
        message_id uuid not null,
        model text not null,
        parts json not null,
        primary key (run_id, message_id)
    )
    """,
    # A run ends in several statements, and in processes of the version before.
    """
    create function forget_returned_reasoning() returns trigger language plpgsql as $$
    begin
        delete from returned_reasoning t where t.run_id = new.id;
        return null;
    end
    $$
    """,
    """
    create trigger run_end_forgets_returned_reasoning after update of status on runs
        for each row when (new.status not in ('queued', 'running')) execute function forget_returned_reasoning()
    """,
    # A trigger, so that also a process of the version before forgets what it redacts.
    """
    create function forget_reasoning() returns trigger language plpgsql as $$
    begin
        delete from message_reasoning t using messages m
        where m.id = t.message_id and m.session_id = new.session_id and m.position >= new.position;
        return null;
    end
    $$
    """,
    """
    create trigger redaction_forgets_reasoning after insert on message_redactions
        for each row execute function forget_reasoning()
    """,
    _FORBID,
    _ALLOW.format(types=TYPES.format(reasoning="'reasoning.delta', ")),
)
DOWNGRADE = (
    "drop trigger redaction_forgets_reasoning on message_redactions",
    "drop function forget_reasoning()",
    "drop table message_reasoning",
    "drop trigger run_end_forgets_returned_reasoning on runs",
    "drop function forget_returned_reasoning()",
    "drop table returned_reasoning",
    _FORBID,
    # A run's events are deleted together: readers find all or none.
    "delete from run_events where run_id in (select run_id from run_events where type = 'reasoning.delta')",
    _ALLOW.format(types=TYPES.format(reasoning="")),
)


def upgrade() -> None:
    """Add the tables, their triggers and the type."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWNGRADE:
        op.execute(statement)
