"""What retention looks for by its age has an index, and tables in which rows die often are vacuumed by small shares.

Revision ID: 0020
Revises: 0019
"""

from sqlalchemy import text

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

INDEXES = {
    # Ids are in the order of their making: old keys stand in front, and leave the index when they are forgotten.
    "runs_keyed": "runs (id) where idempotency_key is not null",
    "sessions_keyed": "sessions (id) where idempotency_key is not null",
    "sessions_archived": "sessions (updated_at, id) where archived",
}
IS_HALF_BUILT = text("select exists (select from pg_index where indexrelid = to_regclass(:name) and not indisvalid)")
VACUUM = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = {rows}"
SETTINGS = (
    # Each adoption changes the version before it, and prepared ones that came too late are deleted. Their ledgers and
    # texts lie in the side table.
    ("summary_versions", VACUUM.format(rows=200)),
    ("summary_versions", "toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 1000"),
    # Small blocks of the index are written anew as one larger one.
    ("search_terms", VACUUM.format(rows=1000)),
    # Come and go within a week.
    ("slack_events", VACUUM.format(rows=500)),
    ("slack_parts", VACUUM.format(rows=500)),
    # Each message moves `updated_at`, which is indexed.
    ("slack_conversations", VACUUM.format(rows=200)),
)


def upgrade() -> None:
    """Add the indexes beside those who write meanwhile, and set the shares."""
    with op.get_context().autocommit_block():
        _wait_for_others()
        for name, definition in INDEXES.items():
            if op.get_bind().execute(IS_HALF_BUILT, {"name": name}).scalar_one():
                op.execute(f"drop index concurrently {name}")  # of a build that was interrupted
            op.execute(f"create index concurrently if not exists {name} on {definition}")
        op.execute("reset lock_timeout")
    op.execute("set local lock_timeout = '3s'")
    for table, settings in SETTINGS:
        op.execute(f"alter table {table} set ({settings})")


def downgrade() -> None:
    """Go back to the server's own settings, and drop the indexes."""
    op.execute("set local lock_timeout = '3s'")
    for table, settings in SETTINGS:
        names = ", ".join(setting.split(" = ")[0] for setting in settings.split(", "))
        op.execute(f"alter table {table} reset ({names})")
    with op.get_context().autocommit_block():
        _wait_for_others()
        for name in INDEXES:
            op.execute(f"drop index concurrently if exists {name}")
        op.execute("reset lock_timeout")


def _wait_for_others() -> None:
    """Nobody waits for a build, but it waits for the transactions of others that began before it."""
    op.execute("set lock_timeout = '60s'")
