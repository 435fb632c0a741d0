"""Who may read a session, and write to it, beside its owner: those who took part in it in a Slack channel."""

from app.db.connection.transactions import Transactions
from app.db.slack.people import SlackId, guest_name
from app.db.statements.sql import sql
from app.domain.ids import RunId, SessionId, UserId

_ANY = sql("select exists (select 1 from session_participants) as is_any")
_OWNER_FOR = sql("""
    select s.owner_id from sessions s join session_participants p on p.session_id = s.id and p.user_id = :user_id
    where s.id = cast(:session_id as uuid)
        or s.id = (select r.session_id from runs r where r.id = cast(:run_id as uuid))
""")
_LEAVE = sql("""
    with person as (
        select user_id from slack_users where team_id = :reader_team_id and slack_user_id = :reader_id
    ), newest as (
        select d.reader_team_id, d.reader_id
        from slack_events e join slack_deliveries d on d.run_id = e.run_id
        join slack_users u on u.team_id = d.reader_team_id and u.slack_user_id = d.reader_id
        join person on person.user_id = u.user_id
        where e.team_id = :team_id and e.channel_id = :channel_id
        order by e.message_ts desc limit 1
    )
    delete from session_participants p using person, sessions s, users o
    where p.user_id = person.user_id and s.id = p.session_id and o.id = s.owner_id and o.name = :channel_name
        and not exists (
            select 1 from newest n where n.reader_team_id <> :reader_team_id or n.reader_id <> :reader_id)
    returning p.session_id
""")


class ParticipantRepository:
    """Looks participants up, and takes them out; they come into being with the messages they write."""

    def __init__(self, transactions: Transactions) -> None:
        """Read through `transactions`."""
        self._transactions = transactions

    async def any_exists(self) -> bool:
        """Whether any session has participants."""
        return bool((await self._transactions.fetch(_ANY))[0]["is_any"])

    async def owner_for(
        self, user_id: UserId, *, session_id: SessionId | None = None, run_id: RunId | None = None
    ) -> UserId | None:
        """Return the owner in whose name a participant may reach the session, None for everybody else."""
        rows = await self._transactions.fetch(_OWNER_FOR, user_id=user_id, session_id=session_id, run_id=run_id)
        return UserId(rows[0]["owner_id"]) if rows else None

    async def leave(self, channel: SlackId, who: SlackId) -> int:
        """Take whoever left a channel out of all its sessions; return of how many.

        Somebody with several Slack ids stays while the one they wrote by last in the channel is there. So nobody stays
        who left by all of them, in whatever order; whoever is taken out too early is back with their next message.
        """
        rows = await self._transactions.fetch(
            _LEAVE,
            team_id=channel.team_id,
            channel_id=channel.user_id,
            channel_name=guest_name(channel),
            reader_team_id=who.team_id,
            reader_id=who.user_id,
        )
        return len(rows)
