"""Calls of models are stored with their tokens and their price, and a run keeps what it cost.

A database that was made with today's tables has both already.

Revision ID: 0034
Revises: 0033
"""

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

TOKENS = ("cached_tokens", "cache_write_tokens", "reasoning_tokens")
UPGRADE = (
    *(f"alter table runs add column if not exists {name} integer" for name in TOKENS),
    "alter table runs add column if not exists cost_usd numeric",
    """
    create table if not exists model_calls (
        id uuid not null primary key,
        owner_id uuid,
        session_id uuid,
        run_id uuid,
        agent text not null default '',
        model text not null,
        purpose text not null,
        input_tokens integer,
        output_tokens integer,
        cached_tokens integer,
        cache_write_tokens integer,
        reasoning_tokens integer,
        cost_usd numeric,
        created_at timestamptz not null default now(),
        constraint model_calls_purpose_check check (purpose in ('answer', 'summary', 'embedding'))
    )
    """,
    "create index if not exists model_calls_by_owner on model_calls (owner_id, created_at)",
    "create index if not exists model_calls_by_time on model_calls using brin (created_at)",
)


def upgrade() -> None:
    """Add the table and the columns."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Undo it."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("drop table model_calls")
    for name in (*TOKENS, "cost_usd"):
        op.execute(f"alter table runs drop column {name}")
