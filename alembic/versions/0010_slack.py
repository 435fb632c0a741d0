"""Slack: who its people are, which session a thread is, the events already taken, and what is to be delivered.

Revision ID: 0010
Revises: 0004
"""

from alembic import op

revision = "0010"
down_revision = "0007"
branch_labels = None
depends_on = None

UP = (
    """
    create table session_participants (
        session_id uuid not null references sessions (id) on delete cascade,
        user_id uuid not null references users (id),
        created_at timestamptz not null default now(),
        primary key (session_id, user_id)
    )
    """,
    "create index session_participants_user_id_idx on session_participants (user_id)",
    """
    create table slack_users (
        team_id text not null,
        slack_user_id text not null,
        user_id uuid not null references users (id),
        linked_by text not null default 'guest',
        display_name text not null default '',
        looked_up_at timestamptz,
        created_at timestamptz not null default now(),
        primary key (team_id, slack_user_id),
        constraint slack_users_linked_by_check check (linked_by in ('guest', 'email', 'code'))
    )
    """,
    "create index slack_users_user_id_idx on slack_users (user_id)",
    """
    create table slack_link_codes (
        code_hash bytea primary key,
        user_id uuid not null references users (id),
        expires_at timestamptz not null
    )
    """,
    """
    create table slack_conversations (
        team_id text not null,
        channel_id text not null,
        thread_ts text not null,
        session_id uuid references sessions (id) on delete set null,
        created_at timestamptz not null default now(),
        updated_at timestamptz not null default now(),
        primary key (team_id, channel_id, thread_ts)
    )
    """,
    "create index slack_conversations_session_id_idx on slack_conversations (session_id)",
    "create index slack_conversations_newest on slack_conversations (team_id, channel_id, updated_at desc)",
    """
    create table slack_events (
        team_id text not null,
        event_id text not null,
        channel_id text not null,
        message_ts text not null,
        run_id uuid references runs (id) on delete set null,
        created_at timestamptz not null default now(),
        primary key (team_id, event_id),
        constraint slack_events_team_id_channel_id_message_ts_key unique (team_id, channel_id, message_ts)
    )
    """,
    "create index slack_events_run_id_idx on slack_events (run_id) where run_id is not null",
    "create index slack_events_created_at_idx on slack_events (created_at)",
    # What was asked in Slack is answered there through this outbox, by whoever holds the row's lease and its fence.
    """
    create table slack_deliveries (
        id uuid primary key,
        seq bigint generated always as identity not null,
        run_id uuid references runs (id) on delete cascade,
        team_id text not null,
        channel_id text not null,
        thread_ts text not null,
        message_ts text not null,
        reader_id text not null,
        reader_team_id text not null,
        notice text not null default '',
        status text not null default 'waiting',
        worker text,
        lease_until timestamptz,
        fence integer not null default 0,
        attempt integer not null default 0,
        next_try_at timestamptz not null default now(),
        error text not null default '',
        created_at timestamptz not null default now(),
        finished_at timestamptz,
        constraint slack_deliveries_run_id_key unique (run_id),
        constraint slack_deliveries_status_check check (status in ('waiting', 'delivering', 'delivered', 'failed')),
        constraint slack_deliveries_lease_check check ((status = 'delivering') = (lease_until is not null))
    ) with (fillfactor = 70)
    """,
    """
    create index slack_deliveries_line on slack_deliveries (team_id, channel_id, thread_ts, seq)
        where status in ('waiting', 'delivering')
    """,
    """
    create index slack_deliveries_due on slack_deliveries (seq) where status in ('waiting', 'delivering')
    """,
    "create index slack_deliveries_finished_at_idx on slack_deliveries (finished_at) where finished_at is not null",
    """
    alter table slack_deliveries set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500)
    """,
    # One posted message of an answer. Written before the call, so that a crash between the two is seen.
    """
    create table slack_parts (
        delivery_id uuid not null references slack_deliveries (id) on delete cascade,
        number integer not null,
        ts text,
        status text not null default 'sending',
        starts integer not null,
        created_at timestamptz not null default now(),
        primary key (delivery_id, number),
        constraint slack_parts_status_check check (status in ('sending', 'open', 'closed')),
        constraint slack_parts_ts_check check ((status = 'sending') = (ts is null)),
        constraint slack_parts_starts_check check (starts >= 0)
    )
    """,
    "create index slack_parts_ts_idx on slack_parts (ts) where ts is not null",
)

DOWN = (
    "drop table slack_parts",
    "drop table slack_deliveries",
    "drop table slack_events",
    "drop table slack_conversations",
    "drop table slack_link_codes",
    "drop table slack_users",
    "drop table session_participants",
)


def upgrade() -> None:
    """Add the tables."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    """Drop them."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DOWN:
        op.execute(statement)
