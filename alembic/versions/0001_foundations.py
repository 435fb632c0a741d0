"""Users, keys, sessions, messages that never change, runs with their events, summaries, token calibration.

Revision ID: 0001
Revises:
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    """
    create table users (
        id uuid not null,
        name text not null,
        created_at timestamptz default now() not null,
        constraint users_pkey primary key (id),
        constraint users_name_length_check check (length(name) between 1 and 200),
        constraint users_name_key unique (name)
    )
    """,
    """
    create table api_keys (
        id uuid not null,
        user_id uuid not null,
        name text default '' not null,
        prefix text not null,
        secret_hash bytea not null,
        scopes text[] not null,
        created_at timestamptz default now() not null,
        last_used_at timestamptz,
        revoked_at timestamptz,
        constraint api_keys_pkey primary key (id),
        constraint api_keys_scopes_check check (scopes <@ array['read', 'write', 'act_as']::text[]),
        constraint api_keys_secret_hash_length_check check (octet_length(secret_hash) = 32),
        constraint api_keys_user_id_fkey foreign key (user_id) references users (id),
        constraint api_keys_prefix_key unique (prefix),
        constraint api_keys_secret_hash_key unique (secret_hash)
    )
    """,
    "create index api_keys_user_id_idx on api_keys (user_id)",
    """
    create table sessions (
        id uuid not null,
        owner_id uuid not null,
        agent text not null,
        title text default '' not null,
        source text not null,
        conversation_summary text default '' not null,
        summary_through_id uuid,
        summary_through_position integer default 0 not null,
        summary_version integer default 0 not null,
        summary_tokens integer default 0 not null,
        view_state jsonb default '{}'::jsonb not null,
        message_count integer default 0 not null,
        message_tokens bigint default 0 not null,
        input_tokens bigint default 0 not null,
        output_tokens bigint default 0 not null,
        metadata jsonb default '{}'::jsonb not null,
        archived boolean default false not null,
        idempotency_key text,
        fingerprint text default '' not null,
        created_at timestamptz default now() not null,
        updated_at timestamptz default now() not null,
        constraint sessions_pkey primary key (id),
        constraint sessions_source_check check (source in ('web', 'slack', 'worker', 'cli', 'api')),
        constraint sessions_message_count_check check (message_count >= 0),
        constraint sessions_cursor_check check (summary_through_position between 0 and message_count),
        constraint sessions_cursor_id_check check ((summary_through_id is null) = (summary_through_position = 0)),
        constraint sessions_idempotency_key_length_check check (length(idempotency_key) <= 255),
        constraint sessions_owner_id_fkey foreign key (owner_id) references users (id)
    ) with (fillfactor = 70)
    """,
    """
    create unique index sessions_idempotency
        on sessions (owner_id, idempotency_key) where idempotency_key is not null
    """,
    "create index sessions_newest on sessions (owner_id, updated_at desc, id desc)",
    """
    create index sessions_summary_through
        on sessions (summary_through_id) where summary_through_id is not null
    """,
    """
    create table runs (
        id uuid not null,
        session_id uuid not null,
        owner_id uuid not null,
        agent text not null,
        seq bigint generated always as identity not null,
        status text not null,
        input json not null,
        source text not null,
        author text,
        actor text,
        idempotency_key text,
        fingerprint text default '' not null,
        worker text,
        lease_until timestamptz,
        fence integer default 0 not null,
        attempt integer default 0 not null,
        cancel_requested boolean default false not null,
        input_tokens integer,
        output_tokens integer,
        error_type text,
        error_detail text,
        context json,
        created_at timestamptz default now() not null,
        started_at timestamptz,
        finished_at timestamptz,
        constraint runs_pkey primary key (id),
        constraint runs_status_check check (status in ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
        constraint runs_source_check check (source in ('web', 'slack', 'worker', 'cli', 'api')),
        constraint runs_lease_check check ((status = 'running') = (lease_until is not null)),
        constraint runs_idempotency_key_length_check check (length(idempotency_key) <= 255),
        constraint runs_session_id_id_key unique (session_id, id),
        constraint runs_session_id_fkey foreign key (session_id) references sessions (id),
        constraint runs_owner_id_fkey foreign key (owner_id) references users (id)
    ) with (fillfactor = 70)
    """,
    "create index runs_claim on runs (seq) where status in ('queued', 'running')",
    """
    create unique index runs_idempotency
        on runs (owner_id, idempotency_key) where idempotency_key is not null
    """,
    "create index runs_line on runs (session_id, seq) where status in ('queued', 'running')",
    "create unique index runs_one_running on runs (session_id) where status = 'running'",
    """
    create table messages (
        id uuid not null,
        session_id uuid not null,
        position integer not null,
        role text not null,
        content text,
        content_blocks json,
        tool_calls jsonb default '[]'::jsonb not null,
        tool_call_id text,
        name text,
        run_id uuid,
        step text,
        author text,
        source text not null,
        token_count integer default 0 not null,
        counter text default '' not null,
        metadata jsonb default '{}'::jsonb not null,
        created_at timestamptz default clock_timestamp() not null,
        constraint messages_pkey primary key (id),
        constraint messages_role_check check (role in ('user', 'assistant', 'tool')),
        constraint messages_source_check check (source in ('web', 'slack', 'worker', 'cli', 'api')),
        constraint messages_position_check check (position > 0),
        constraint messages_token_count_check check (token_count >= 0),
        constraint messages_tool_call_id_check check ((role = 'tool') = (tool_call_id is not null)),
        constraint messages_one_content_check check ((content is null) <> (content_blocks is null)),
        constraint messages_session_id_position_key unique (session_id, position),
        constraint messages_run_id_step_key unique (run_id, step),
        constraint messages_run_fkey foreign key (session_id, run_id) references runs (session_id, id),
        constraint messages_session_id_fkey foreign key (session_id) references sessions (id)
    )
    """,
    """
    alter table sessions add constraint sessions_summary_through_id_fkey
        foreign key (summary_through_id) references messages (id)
    """,
    """
    create table message_pins (
        message_id uuid not null,
        session_id uuid not null,
        created_at timestamptz default now() not null,
        constraint message_pins_pkey primary key (message_id),
        constraint message_pins_message_id_fkey foreign key (message_id) references messages (id),
        constraint message_pins_session_id_fkey foreign key (session_id) references sessions (id)
    )
    """,
    "create index message_pins_session_id_idx on message_pins (session_id)",
    """
    create unlogged table run_events (
        run_id uuid not null,
        seq integer not null,
        type text not null,
        data json not null,
        created_at timestamptz default now() not null,
        constraint run_events_pkey primary key (run_id, seq),
        constraint run_events_type_check check (type in (
            'run.started', 'context.compaction.started', 'context.compaction.finished',
            'message.delta', 'tool.call', 'tool.result', 'message.completed',
            'run.completed', 'run.failed', 'run.cancelled', 'reset'))
    )
    """,
    """
    create table summaries (
        id uuid not null,
        session_id uuid not null,
        from_position integer not null,
        through_position integer not null,
        through_id uuid not null,
        level smallint default 0 not null,
        text text not null,
        token_count integer not null,
        model text not null,
        prompt_version text not null,
        read_hash text not null,
        input_tokens integer not null,
        output_tokens integer not null,
        duration_seconds double precision not null,
        created_at timestamptz default now() not null,
        constraint summaries_pkey primary key (id),
        constraint summaries_positions_check check (from_position > 0 and from_position <= through_position),
        constraint summaries_session_id_fkey foreign key (session_id) references sessions (id)
    )
    """,
    "create index summaries_read_hash on summaries (session_id, read_hash)",
    """
    create table summary_versions (
        id uuid not null,
        session_id uuid not null,
        version integer not null,
        state text not null,
        stretch_ids uuid[] not null,
        text text not null,
        ledger jsonb default '[]'::jsonb not null,
        token_count integer not null,
        through_id uuid not null,
        through_position integer not null,
        model text not null,
        created_at timestamptz default now() not null,
        constraint summary_versions_pkey primary key (id),
        constraint summary_versions_state_check check (state in ('prepared', 'adopted', 'superseded')),
        constraint summary_versions_session_id_version_key unique (session_id, version),
        constraint summary_versions_session_id_fkey foreign key (session_id) references sessions (id)
    )
    """,
    "create unique index summary_versions_one_adopted on summary_versions (session_id) where state = 'adopted'",
    """
    create table token_calibration (
        model text not null,
        ratio double precision not null,
        samples integer not null,
        learned_window integer,
        updated_at timestamptz default now() not null,
        constraint token_calibration_pkey primary key (model),
        constraint token_calibration_ratio_check check (ratio > 0),
        constraint token_calibration_samples_check check (samples >= 0)
    )
    """,
)

APPEND_ONLY = (
    """
    create function refuse_message_change() returns trigger language plpgsql as $$
    begin
        if tg_op = 'DELETE' and current_setting('throughline.erasure', true) = 'on' then
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
)

DROPPED = (
    "alter table sessions drop constraint sessions_summary_through_id_fkey",
    "drop table token_calibration, summary_versions, summaries, run_events, message_pins, messages, runs",
    "drop table sessions, api_keys, users",
    "drop function refuse_message_change()",
)


def upgrade() -> None:
    """Create everything."""
    op.execute("set local lock_timeout = '3s'")
    for statement in (*TABLES, *APPEND_ONLY):
        op.execute(statement)


def downgrade() -> None:
    """Drop everything, with all that is stored."""
    op.execute("set local lock_timeout = '3s'")
    for statement in DROPPED:
        op.execute(statement)
