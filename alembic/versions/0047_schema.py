"""The whole schema, as db/tables and the front ends describe it: tables, indexes, functions and triggers.

Until the first release a table is changed where it is described, and databases are made anew: the revision gets a new
number, and the old one is added to UNRELEASED in db/connection/migrations.py. The release freezes this file.

Revision ID: 0047
Revises:
"""

from alembic import op
from throughline.assembly.front_ends import import_tables
from throughline.db.tables import METADATA

revision = "0047"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create everything."""
    op.execute("set local lock_timeout = '3s'")
    import_tables()
    METADATA.create_all(op.get_bind(), checkfirst=False)


def downgrade() -> None:
    """Drop everything, with all that is stored; db/memories.py may have made a table of its own."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop table if exists memory_embeddings")
    import_tables()
    METADATA.drop_all(op.get_bind(), checkfirst=True)
