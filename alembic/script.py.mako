"""${message}

Revision ID: ${up_revision}
Revises: ${down_revision | comma,n}
"""

from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """One change; wait for locks no longer than the service can bear."""
    op.execute("set local lock_timeout = '3s'")
    ${upgrades if upgrades else ""}


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    ${downgrades if downgrades else ""}
