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
        session_id uuid not null,
        team_id text not null,
        slack_user_id text not null,
        created_at timestamptz not null default now(),
        primary key (session_id, team_id, slack_user_id)
    )
    """,
    "create index slack_participants_person on slack_participants (team_id, slack_user_id)",
    # By whom a user took part is told by the messages.
    """
    insert into slack_participants (session_id, team_id, slack_user_id)
    select distinct r.session_id, u.team_id, u.slack_user_id
    from session_participants p join slack_users u on u.user_id = p.user_id
    join runs r on r.session_id = p.session_id and r.input #>> '{metadata,slack,user}' = u.slack_user_id
        and r.input #>> '{metadata,slack,team}' = u.team_id and r.source = 'slack'
    """,
    # Of who wrote only what was redacted or withdrawn since, by whom they are, where that is one person.
    """
    insert into slack_participants (session_id, team_id, slack_user_id)
    select p.session_id, min(u.team_id), min(u.slack_user_id)
    from session_participants p join slack_users u on u.user_id = p.user_id
    where not exists (
        select 1 from slack_participants n join slack_users w using (team_id, slack_user_id)
        where n.session_id = p.session_id and w.user_id = p.user_id)
    group by p.session_id, p.user_id having count(*) = 1
    """,
    # The references come last: with them, writers of sessions wait until the end.
    "delete from slack_participants p where not exists (select 1 from sessions s where s.id = p.session_id)",
    """
    alter table slack_participants
        add constraint slack_participants_session_id_fkey
            foreign key (session_id) references sessions (id) on delete cascade,
        add constraint slack_participants_team_id_slack_user_id_fkey
            foreign key (team_id, slack_user_id) references slack_users (team_id, slack_user_id)
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
