"""Redaction: the one change a stored message allows, and the record of it.

Revision ID: 0007
Revises: 0006
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_REFUSE = """
    create or replace function refuse_message_change() returns trigger language plpgsql as $$
    begin
        if tg_op = 'DELETE' and current_setting('throughline.erasure', true) = 'on' then
            return null;
        end if;
        {redaction}
        raise exception 'messages are append-only: % refused', lower(tg_op) using errcode = 'restrict_violation';
    end
    $$
"""
_ALLOWED = """
        if tg_op = 'UPDATE' and current_setting('throughline.redaction', true) = 'on' then
            return null;
        end if;
"""
UP = (
    """
    create table message_redactions (
        message_id uuid not null,
        session_id uuid not null,
        position integer not null,
        actor text,
        created_at timestamptz default now() not null,
        constraint message_redactions_pkey primary key (message_id),
        constraint message_redactions_session_id_fkey foreign key (session_id) references sessions (id)
    )
    """,
    "create index message_redactions_session_id_idx on message_redactions (session_id)",
    "alter table sessions add column redaction_count integer default 0 not null",
    _REFUSE.format(redaction=_ALLOWED),
)
DOWN = (
    _REFUSE.format(redaction=""),
    "alter table sessions drop column redaction_count",
    "drop table message_redactions",
)


def upgrade() -> None:
    """Allow an update of a message inside a transaction that says it redacts."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    """Refuse every update again; what was redacted stays so."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWN:
        op.execute(statement)
