"""Looking up what a command or a reaction in Slack is about: the session of a thread, the run of a message."""

from dataclasses import dataclass

from app.db.connection.transactions import Transactions
from app.db.slack.inbox import Place
from app.db.statements.sql import sql
from app.domain.ids import RunId, SessionId, UserId

_MAY = """(s.owner_id = :user_id or exists (
        select 1 from session_participants p where p.session_id = s.id and p.user_id = :user_id))"""
_LATEST = sql(
    """
    select c.thread_ts, s.id, s.owner_id from slack_conversations c join sessions s on s.id = c.session_id
    where c.team_id = :team_id and c.channel_id = :channel_id and {may}
    order by c.updated_at desc limit 1
""",
    may=_MAY,
)
_LEAVE = sql("""
    update slack_conversations set session_id = null
    where team_id = :team_id and channel_id = :channel_id and thread_ts = :thread_ts
""")
_OPEN_RUNS = sql("""
    select id from runs where session_id = :session_id and status in ('queued', 'running') order by seq
""")
_RUN_AT = sql(
    """
    with said as (
        select e.run_id from slack_events e
        where e.team_id = :team_id and e.channel_id = :channel_id and e.message_ts = :message_ts
        union all
        select d.run_id from slack_parts p join slack_deliveries d on d.id = p.delivery_id
        where p.ts = :message_ts and d.team_id = :team_id and d.channel_id = :channel_id
    )
    select r.id, r.owner_id from said join runs r on r.id = said.run_id join sessions s on s.id = r.session_id
    where {may} limit 1
""",
    may=_MAY,
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A thread's session, in whose name it may be used by somebody who takes part in it."""

    thread_ts: str
    session_id: SessionId
    owner_id: UserId


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run and the owner of its session."""

    run_id: RunId
    owner_id: UserId


class SlackConversations:
    """Answers only about sessions of which the asking user is the owner or a participant."""

    def __init__(self, transactions: Transactions) -> None:
        """Work through `transactions`."""
        self._transactions = transactions

    async def latest(self, team_id: str, channel_id: str, user_id: UserId) -> Conversation | None:
        """Return the channel's last used conversation in which the user takes part."""
        rows = await self._transactions.fetch(_LATEST, team_id=team_id, channel_id=channel_id, user_id=user_id)
        if not rows:
            return None
        return Conversation(rows[0]["thread_ts"], SessionId(rows[0]["id"]), UserId(rows[0]["owner_id"]))

    async def leave(self, team_id: str, channel_id: str, thread_ts: str) -> None:
        """Part the thread from its session: its next message opens a new one. The old one is kept."""
        await self._transactions.fetch(_LEAVE, team_id=team_id, channel_id=channel_id, thread_ts=thread_ts)

    async def open_runs(self, session_id: SessionId) -> tuple[RunId, ...]:
        """Return the runs that wait or are at work, in their order."""
        rows = await self._transactions.fetch(_OPEN_RUNS, session_id=session_id)
        return tuple(RunId(row["id"]) for row in rows)

    async def run_at(self, place: Place, user_id: UserId) -> OpenRun | None:
        """Return the run that a message asked for or answers, if the user takes part in its session."""
        rows = await self._transactions.fetch(
            _RUN_AT,
            team_id=place.team_id,
            channel_id=place.channel_id,
            message_ts=place.message_ts,
            user_id=user_id,
        )
        return OpenRun(RunId(rows[0]["id"]), UserId(rows[0]["owner_id"])) if rows else None
