"""Summaries that are written ahead: prepared versions, and stretches that are stored once.

Revision ID: 0002
Revises: 0001
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

UP = (
    "alter table summary_versions alter column version drop not null",
    "alter table summary_versions add column base_version integer",
    "alter table summary_versions add column run_id uuid",
    """
    alter table summary_versions add constraint summary_versions_version_check
        check (version is not null or state = 'prepared')
    """,
    """
    alter table summary_versions add constraint summary_versions_base_version_check
        check (base_version is not null or state <> 'prepared')
    """,
    "create unique index summary_versions_one_prepared on summary_versions (session_id) where state = 'prepared'",
    "create unique index summaries_once on summaries (session_id, read_hash) where prompt_version <> '1'",
    "drop index summaries_read_hash",
)

DOWN = (
    "create index summaries_read_hash on summaries (session_id, read_hash)",
    "drop index summaries_once",
    "drop index summary_versions_one_prepared",
    "delete from summary_versions where version is null",
    "alter table summary_versions drop constraint summary_versions_base_version_check",
    "alter table summary_versions drop constraint summary_versions_version_check",
    "alter table summary_versions drop column run_id, drop column base_version",
    "alter table summary_versions alter column version set not null",
)


def upgrade() -> None:
    """Let a version be without a number while it is prepared, and keep a stretch from being stored twice.

    Stretches of prompt version 1 stay out of it: they were stored with every adoption, some of them more than once.
    """
    op.execute("set local lock_timeout = '3s'")
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    """Forget prepared versions; what is adopted stays."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWN:
        op.execute(statement)
