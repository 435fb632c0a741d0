"""Participants of sessions: people besides the owner who wrote to a session in Slack.

They are stored by Slack identity. Whichever user that identity is linked to has access, and a former user has not.
"""

from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.statements.sql import sql
from throughline.slack.store.people import SlackId, guest_name, lock_person
from throughline.slack.store.slack_events import Left

IS_ANY_SHARED = sql("select exists (select 1 from slack_participants) as is_shared")
OWNER_FOR = sql("""
    select s.owner_id from sessions s
    where (s.id = cast(:session_id as uuid)
        or s.id = (select r.session_id from runs r where r.id = cast(:run_id as uuid))
    ) and exists (
        select 1 from slack_participants p join slack_users u using (team_id, slack_user_id)
        where p.session_id = s.id and u.user_id = :user_id)
""")
_NOTE_DEPARTURE = sql("""
    insert into slack_departures as d (team_id, channel_id, reader_team_id, reader_id, left_ts)
    values (:team_id, :channel_id, :reader_team_id, :reader_id, cast(cast(:left_ts as text) as numeric))
    on conflict (team_id, channel_id, reader_team_id, reader_id) do update
    set left_ts = greatest(d.left_ts, excluded.left_ts), created_at = now()
""")
_END_PARTS = sql("""
    delete from slack_participants p using sessions s, users o
    where p.team_id = :reader_team_id and p.slack_user_id = :reader_id
        and s.id = p.session_id and o.id = s.owner_id and o.name = :channel_name
    returning p.session_id
""")


class Participants:
    """Removal of participants. They are added when a message of theirs is accepted."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def leave(self, left: Left) -> int:
        """Remove a person who left a Slack channel from the sessions of that channel; return how many those were.

        A person with several Slack ids keeps access by the others. A message of theirs that is being accepted is waited
        for. A message sent before they left but delivered later does not make them a participant.
        """
        return await self._transactions.run(lambda tx: _leave(tx, left))


async def _leave(tx: Statements, left: Left) -> int:
    who = {"reader_team_id": left.who.team_id, "reader_id": left.who.user_id}
    await lock_person(tx, left.who)
    await tx.fetch(
        _NOTE_DEPARTURE, team_id=left.team_id, channel_id=left.channel_id, left_ts=left.left_ts or "0", **who
    )
    channel = guest_name(SlackId(left.team_id, left.channel_id))
    return len(await tx.fetch(_END_PARTS, channel_name=channel, **who))
