"""Facts that a summary model names are kept with their stretch; a version's ledger is called what it holds.

A database that was made with today's tables has these columns already.

Revision ID: 0026
Revises: 0025
"""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

RENAMED = """
    do $$
    begin
        if exists (select 1 from information_schema.columns where table_schema = current_schema()
                and table_name = 'summary_versions' and column_name = '{before}') then
            alter table summary_versions rename column {before} to {after};
        end if;
    end
    $$
"""


def upgrade() -> None:
    """Add the column and rename the other."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("alter table summaries add column if not exists kept_facts jsonb not null default '[]'::jsonb")
    op.execute(RENAMED.format(before="ledger", after="kept_facts"))


def downgrade() -> None:
    """Undo it; facts that were named are lost with their stretches."""
    op.execute("set local lock_timeout = '3s'")
    op.execute(RENAMED.format(before="kept_facts", after="ledger"))
    op.execute("alter table summaries drop column if exists kept_facts")
