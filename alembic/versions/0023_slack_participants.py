"""Whoever takes part in a channel's session does so as the person Slack knows, and until they leave the channel.

Revision ID: 0023
Revises: 0022
"""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

UP = (
    """
    create table slack_participants (
        session_id uuid not null references sessions (id) on delete cascade,
        team_id text not null,
        slack_user_id text not null,
        created_at timestamptz not null default now(),
        primary key (session_id, team_id, slack_user_id),
        constraint slack_participants_team_id_slack_user_id_fkey
            foreign key (team_id, slack_user_id) references slack_users (team_id, slack_user_id)
    )
    """,
    "create index slack_participants_person on slack_participants (team_id, slack_user_id)",
    # By whom a user took part is told by the messages.
    """
    insert into slack_participants (session_id, team_id, slack_user_id)
    select distinct r.session_id, u.team_id, u.slack_user_id
    from session_participants p join slack_users u on u.user_id = p.user_id
    join runs r on r.session_id = p.session_id and r.input #>> '{metadata,slack,user}' = u.slack_user_id
        and r.input #>> '{metadata,slack,team}' = u.team_id
    """,
    """
    create table slack_departures (
        team_id text not null,
        channel_id text not null,
        reader_team_id text not null,
        reader_id text not null,
        left_ts numeric not null,
        created_at timestamptz not null default now(),
        primary key (team_id, channel_id, reader_team_id, reader_id)
    )
    """,
    "create index slack_departures_created_at_idx on slack_departures (created_at)",
)


def upgrade() -> None:
    """Add the tables. `session_participants` stays for processes of earlier versions, and is read by no other."""
    op.execute("set local lock_timeout = '3s'")
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    """Earlier versions know participants by the user: whom they are now."""
    op.execute("set local lock_timeout = '3s'")
    op.execute("delete from session_participants")
    op.execute("""
        insert into session_participants (session_id, user_id)
        select distinct p.session_id, u.user_id
        from slack_participants p join slack_users u using (team_id, slack_user_id)
    """)
    op.execute("drop table slack_departures")
    op.execute("drop table slack_participants")
