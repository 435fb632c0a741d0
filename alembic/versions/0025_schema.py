"""The whole schema: the tables as db/tables describes them, and what only SQL can say.

Until the first release a table is changed in db/tables and databases are made anew. The release freezes this file.

Revision ID: 0025
Revises:
"""

from alembic import op
from throughline.db.tables import METADATA

revision = "0025"
down_revision = None
branch_labels = None
depends_on = None

FUNCTIONS = (
    # A row that is redacted or erased is changed inside a transaction that says so.
    """
    create function refuse_message_change() returns trigger language plpgsql as $$
    begin
        if tg_op = 'DELETE' and current_setting('throughline.erasure', true) = 'on' then
            return null;
        end if;
        if tg_op = 'UPDATE' and current_setting('throughline.redaction', true) = 'on' then
            return null;
        end if;
        raise exception 'messages are append-only: % refused', lower(tg_op) using errcode = 'restrict_violation';
    end
    $$
    """,
    """
    create trigger messages_append_only before update or delete or truncate on messages
        for each statement execute function refuse_message_change()
    """,
    # A volatile function reads with a fresh snapshot: a statement that has waited for a lock would read an older one.
    # A function in `language sql` could be inlined into the statement.
    """
    create function session_line(wanted uuid, out queued bigint, out first_id uuid)
    language plpgsql volatile as $$
    begin
        select count(*) filter (where w.status = 'queued'), (array_agg(w.id order by w.seq))[1]
        into queued, first_id
        from runs w where w.session_id = wanted and w.status in ('queued', 'running');
    end
    $$
    """,
    # Wakes those who take side jobs once a job was put in line, or put back (db/connection/notification.py).
    """
    create function announce_job() returns trigger language plpgsql as $$
    begin
        perform pg_notify('throughline', 'j:');
        return null;
    end
    $$
    """,
    """
    create trigger jobs_announced after insert or update of due_at on jobs
        for each row when (new.due_at <= now()) execute function announce_job()
    """,
)

DROPPED = (
    "drop function session_line(uuid)",
    "drop function refuse_message_change()",
    "drop function announce_job()",
)


def upgrade() -> None:
    """Create everything."""
    op.execute("set local lock_timeout = '3s'")
    METADATA.create_all(op.get_bind(), checkfirst=False)
    for statement in FUNCTIONS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """Drop everything, with all that is stored; db/memories/vector_table.py may have made a table of its own."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop table if exists memory_embeddings")
    METADATA.drop_all(op.get_bind(), checkfirst=True)
    for statement in DROPPED:
        op.execute(statement)
