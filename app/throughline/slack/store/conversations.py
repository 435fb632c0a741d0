"""Lookup of what a Slack command or reaction is about: a thread's session, or a message's run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Repository, Statements
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.slack.store.people import SlackId
from throughline.slack.store.slack_events import SlackLocation

# Continuing a session in Slack: it is reserved for the next new thread of a direct conversation. Until then it is
# stored under the empty thread id '', which Slack never uses.

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


_MAY = """(s.owner_id = :user_id or exists (
        select 1 from slack_participants p join slack_users u using (team_id, slack_user_id)
        where p.session_id = s.id and u.user_id = :user_id))"""
_THREAD = "c.thread_ts, c.session_id, s.owner_id, s.title, s.archived, {may} as may"
_NEWEST = sql(
    """
    with mine as (
        select d.thread_ts from slack_deliveries d
        where d.team_id = :team_id and d.channel_id = :channel_id and d.run_id is not null
            and d.reader_id = :reader_id and d.reader_team_id = :reader_team_id
        order by d.message_ts desc limit 1
    )
    select {thread} from mine
    join slack_conversations c on c.team_id = :team_id and c.channel_id = :channel_id and c.thread_ts = mine.thread_ts
    left join sessions s on s.id = c.session_id
""",
    thread=_THREAD.format(may=_MAY),
)
_LAST_USED = sql(
    """
    select {thread} from slack_conversations c left join sessions s on s.id = c.session_id
    where c.team_id = :team_id and c.channel_id = :channel_id and c.thread_ts <> ''
    order by c.updated_at desc limit 1
""",
    thread=_THREAD.format(may=_MAY),
)
"""The most recently used thread of a direct conversation, in which only one person writes."""

_LAST_USED_BY_ANY = sql("""
    with mine as (
        select distinct p.session_id from slack_users u join slack_participants p using (team_id, slack_user_id)
        where u.user_id = :user_id
    )
    select c.thread_ts, c.session_id, s.owner_id, s.title, s.archived, true as may
    from mine join slack_conversations c on c.session_id = mine.session_id
    join sessions s on s.id = c.session_id and not s.archived
    where c.team_id = :team_id and c.channel_id = :channel_id and c.thread_ts <> ''
    order by c.updated_at desc limit 1
""")
"""The most recently used conversation that the asking user takes part in. Another person may have written last."""

_IS_KNOWN = sql("""
    select exists (select 1 from slack_conversations c
        where c.team_id = :team_id and c.channel_id = :channel_id and c.thread_ts <> '') as is_known
""")
_PART = sql("""
    update slack_conversations set session_id = null
    where team_id = :team_id and channel_id = :channel_id and thread_ts = :thread_ts
""")
_OPEN_RUNS = sql("""
    select id from runs where session_id = :session_id and status in ('queued', 'running', 'waiting') order by seq
""")
_RUN_AT = sql("""
    with said as (
        select e.run_id from slack_events e
        where e.team_id = :team_id and e.channel_id = :channel_id and e.message_ts = :message_ts
        union all
        select d.run_id from slack_parts p join slack_deliveries d on d.id = p.delivery_id
        where p.ts = :message_ts and d.team_id = :team_id and d.channel_id = :channel_id
    )
    select r.id, r.owner_id from said join runs r on r.id = said.run_id
    where (
        select count(distinct u.user_id) from slack_users u join (
            select r.owner_id as user_id
            union select w.user_id from slack_participants p join slack_users w using (team_id, slack_user_id)
            where p.session_id = r.session_id
        ) t on t.user_id = u.user_id
        where u.slack_user_id = :slack_user_id) = 1
    limit 1
""")
"""The run that a Slack message started or answers.

Slack user ids are unique only per workspace. If two users of one session share an id, no run is returned.
"""


@dataclass(frozen=True, slots=True)
class ThreadSession:
    """A thread's session, and its owner, on whose behalf participants may use it."""

    thread_ts: str
    session_id: SessionId
    owner_id: UserId
    title: str


@dataclass(frozen=True, slots=True)
class Detached:
    """A thread that has no session at present; its next message opens a new one."""

    thread_ts: str


@dataclass(frozen=True, slots=True)
class LastUsed:
    """The most recently used thread of a channel that a participant takes part in.

    It is a guess: another person may have written there last.
    """

    conversation: ThreadSession


Found: TypeAlias = ThreadSession | LastUsed | Detached | None


@dataclass(frozen=True, slots=True)
class Asker:
    """The person who asks about a conversation: their Slack identity and their user."""

    slack_id: SlackId
    user_id: UserId


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run and the owner of its session."""

    run_id: RunId
    owner_id: UserId


class SlackConversations(Repository):
    """Lookups limited to sessions that the asking user owns or takes part in."""

    async def latest(self, team_id: str, channel_id: str, asker: Asker) -> Found:
        """Return the conversation in the thread of the asker's newest message in the channel.

        Detached means that this thread has no session now, None that the asker takes part in no thread. If the records
        of all their messages have expired, the most recently used thread is returned. In a channel that is the LastUsed
        of the threads they take part in.
        """
        where = {"team_id": team_id, "channel_id": channel_id, "user_id": asker.user_id}
        is_direct = is_direct_channel(channel_id)
        who = {"reader_id": asker.slack_id.user_id, "reader_team_id": asker.slack_id.team_id}
        rows = await self._transactions.fetch(_NEWEST, **where, **who)
        if not rows and not is_direct:
            return _last_used(await self._transactions.fetch(_LAST_USED_BY_ANY, **where))
        rows = rows or await self._transactions.fetch(_LAST_USED, **where)
        return _found(rows[0], is_direct=is_direct) if rows else None

    async def is_known(self, team_id: str, channel_id: str) -> bool:
        """Whether anybody has written to the bot in this channel or direct conversation."""
        return bool((await self._transactions.fetch(_IS_KNOWN, team_id=team_id, channel_id=channel_id))[0]["is_known"])

    async def leave(self, team_id: str, channel_id: str, thread_ts: str) -> None:
        """Detach the thread from its session, which is kept; the thread's next message opens a new session."""
        await self._transactions.fetch(_PART, team_id=team_id, channel_id=channel_id, thread_ts=thread_ts)

    async def resume(self, team_id: str, channel_id: str, session_id: SessionId, user_id: UserId) -> str | None:
        """Let the next new thread of a direct conversation continue this session; return the session's title.

        Replaces an earlier choice. Return None if the session is missing, archived or another user's.
        """
        return await bind(
            self._transactions, team_id=team_id, channel_id=channel_id, session_id=session_id, user_id=user_id
        )

    async def open_runs(self, session_id: SessionId) -> tuple[RunId, ...]:
        """Return the session's queued and running runs, in order."""
        rows = await self._transactions.fetch(_OPEN_RUNS, session_id=session_id)
        return tuple(RunId(row["id"]) for row in rows)

    async def run_at(self, place: SlackLocation, slack_user_id: str) -> OpenRun | None:
        """Return the run that a Slack message started or answers, if a person with this id takes part in its session.

        The person's workspace does not matter. Return None if two users with this id take part.
        """
        rows = await self._transactions.fetch(
            _RUN_AT,
            team_id=place.team_id,
            channel_id=place.channel_id,
            message_ts=place.message_ts,
            slack_user_id=slack_user_id,
        )
        return OpenRun(RunId(rows[0]["id"]), UserId(rows[0]["owner_id"])) if rows else None


def is_direct_channel(channel_id: str) -> bool:
    """Whether the channel is a direct conversation with the bot; Slack's ids of those begin with D."""
    return channel_id.startswith("D")


def _last_used(rows: Sequence[Row]) -> LastUsed | None:
    return LastUsed(_conversation(rows[0])) if rows else None


def _found(row: Row, *, is_direct: bool) -> Found:
    """Return the result for a thread's row, None if the asker may not use its session.

    Detached is a thread without a session or with an archived one, and a direct thread whose session has another owner
    now.
    """
    if row["session_id"] is None or (row["may"] and row["archived"]) or (is_direct and not row["may"]):
        return Detached(row["thread_ts"])
    if not row["may"]:
        return None
    return _conversation(row)


def _conversation(row: Row) -> ThreadSession:
    return ThreadSession(row["thread_ts"], SessionId(row["session_id"]), UserId(row["owner_id"]), row["title"])
