"""Continuing a session in Slack: it is reserved for the next new thread of a direct conversation.

Until then it is stored under the empty thread id '', which Slack never uses.
"""

from throughline.db.connection.transactions import Statements
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId, UserId

_BIND = sql("""
    insert into slack_conversations as c (team_id, channel_id, thread_ts, session_id)
    select :team_id, :channel_id, '', s.id from sessions s
    where s.id = :session_id and s.owner_id = :user_id and not s.archived
    on conflict (team_id, channel_id, thread_ts) do update set session_id = excluded.session_id, updated_at = now()
    returning (select s.title from sessions s where s.id = c.session_id) as title
""")
_TAKE = sql("""
    with taken as (
        delete from slack_conversations w
        where w.team_id = :team_id and w.channel_id = :channel_id and w.thread_ts = '' and exists (
            select 1 from slack_conversations n where n.team_id = :team_id and n.channel_id = :channel_id
                and n.thread_ts = :thread_ts and n.created_at = now())
        returning w.session_id
    )
    update slack_conversations c set session_id = s.id
    from taken join sessions s on s.id = taken.session_id and s.owner_id = :user_id and not s.archived
    where c.team_id = :team_id and c.channel_id = :channel_id and c.thread_ts = :thread_ts
    returning c.session_id
""")
"""A thread is new if this transaction inserted its row: `created_at` then equals the transaction's start, now()."""


async def bind(tx: Statements, *, team_id: str, channel_id: str, session_id: SessionId, user_id: UserId) -> str | None:
    """Reserve the session for the direct conversation's next new thread; return the session's title.

    Return None if the session is missing, archived or another user's.
    """
    rows = await tx.fetch(_BIND, team_id=team_id, channel_id=channel_id, session_id=session_id, user_id=user_id)
    return str(rows[0]["title"]) if rows else None


async def take_bound(
    tx: Statements, *, team_id: str, channel_id: str, thread_ts: str, user_id: UserId
) -> SessionId | None:
    """Assign the reserved session to the thread, if the thread is new, and return the session.

    Return None if the thread is not new or no session is reserved. A reserved session that is archived, or no longer
    the user's, gives None and loses its reservation.
    """
    rows = await tx.fetch(_TAKE, team_id=team_id, channel_id=channel_id, thread_ts=thread_ts, user_id=user_id)
    return SessionId(rows[0]["session_id"]) if rows else None
