"""People of Slack workspaces: guest users with a history of their own until they are linked to a user."""

from dataclasses import dataclass

from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import UserId

LOOK_UP_AGAIN_MINUTES = 24 * 60
LOOK_UP_FAILED_MINUTES = 5
"""Minutes after which a profile lookup that failed, or whose process died, is repeated."""

_FIND = sql("""
    select p.user_id, p.display_name, u.name as user_name from slack_users p join users u on u.id = p.user_id
    where p.team_id = :team_id and p.slack_user_id = :slack_user_id
""")
_ENSURE_USER = sql("""
    insert into users (id, name) values (:id, :name) on conflict (name) do update set name = excluded.name returning id
""")
_ENSURE_PERSON = sql("""
    insert into slack_users (team_id, slack_user_id, user_id) values (:team_id, :slack_user_id, :user_id)
    on conflict (team_id, slack_user_id) do nothing
""")
_HOLD_PERSON = sql("""
    select 1 as held from slack_users where team_id = :team_id and slack_user_id = :slack_user_id for share
""")
_HOLD_NEWCOMER = sql("""
    select pg_advisory_xact_lock(hashtextextended(cast(:team_id as text) || ':' || cast(:slack_user_id as text), 0))
""")
"""An advisory lock, for a person whose row does not exist yet."""

_CLAIM_LOOK_UPS = sql("""
    with due as (
        select team_id, slack_user_id from slack_users
        where coalesce(looked_up_at, '-infinity') < now() - make_interval(mins => :minutes)
        order by coalesce(looked_up_at, '-infinity') limit :limit for update skip locked
    )
    update slack_users p set looked_up_at = now() - make_interval(mins => :minutes - :failed_minutes) from due
    where p.team_id = due.team_id and p.slack_user_id = due.slack_user_id
    returning p.team_id, p.slack_user_id
""")
_END_LOOK_UP = sql("""
    update slack_users set looked_up_at = now() where team_id = :team_id and slack_user_id = :slack_user_id
""")
_SET_NAME = sql("""
    update slack_users set display_name = :display_name
    where team_id = :team_id and slack_user_id = :slack_user_id
""")
LOCK_PERSON = sql("""
    select p.user_id, p.linked_by from slack_users p
    where p.team_id = :team_id and p.slack_user_id = :slack_user_id for update
""")


@dataclass(frozen=True, slots=True)
class SlackId:
    """A person's Slack identity; user ids are unique only within their workspace."""

    team_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class Person:
    """The user of a Slack person. `display_name` is '' until it was looked up."""

    user_id: UserId
    user_name: str
    display_name: str


def guest_name(who: SlackId) -> str:
    """Return the name of a Slack person's user before linking. Users for channels are named the same way."""
    return f"slack:{who.team_id}:{who.user_id}"


async def ensure_user(tx: Statements, name: str) -> UserId:
    """Return the id of the user with this name, created if missing."""
    return UserId((await tx.fetch(_ENSURE_USER, id=new_id(), name=name))[0]["id"])


async def find_person(tx: Statements, who: SlackId) -> Person | None:
    """Return the Slack person's user, None if they have never written to the bot."""
    rows = await tx.fetch(_FIND, team_id=who.team_id, slack_user_id=who.user_id)
    if not rows:
        return None
    return Person(UserId(rows[0]["user_id"]), rows[0]["user_name"], rows[0]["display_name"])


async def ensure_person(tx: Statements, who: SlackId) -> Person:
    """Return the Slack person's user; create a guest if they have never written to the bot."""
    found = await find_person(tx, who)
    while found is None:
        user_id = await ensure_user(tx, guest_name(who))
        await tx.fetch(_ENSURE_PERSON, team_id=who.team_id, slack_user_id=who.user_id, user_id=user_id)
        found = await find_person(tx, who)
    return found


async def hold_person(tx: Statements, who: SlackId) -> Person:
    """Return the person as ensure_person does, and lock out linking until the transaction ends.

    Waits for a link that is under way, and reads the person's user afterwards.
    """
    if not await tx.fetch(_HOLD_PERSON, team_id=who.team_id, slack_user_id=who.user_id):
        await tx.fetch(_HOLD_NEWCOMER, team_id=who.team_id, slack_user_id=who.user_id)
        await ensure_person(tx, who)
        await tx.fetch(_HOLD_PERSON, team_id=who.team_id, slack_user_id=who.user_id)
    return await ensure_person(tx, who)


async def lock_person(tx: Statements, who: SlackId) -> None:
    """Wait for transactions that accept a message of this person, even their first.

    Later ones wait until this transaction ends.
    """
    await tx.fetch(_HOLD_NEWCOMER, team_id=who.team_id, slack_user_id=who.user_id)
    await tx.fetch(LOCK_PERSON, team_id=who.team_id, slack_user_id=who.user_id)


class SlackPeople:
    """Lookups of Slack people and their profiles."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def find(self, who: SlackId) -> Person | None:
        """Return the Slack person's user, None if they have never written to the bot."""
        return await find_person(self._transactions, who)

    async def claim_look_ups(self, limit: int) -> tuple[SlackId, ...]:
        """Return up to `limit` people whose profile was not looked up for LOOK_UP_AGAIN_MINUTES.

        For LOOK_UP_FAILED_MINUTES no other call returns them.
        """
        rows = await self._transactions.fetch(
            _CLAIM_LOOK_UPS, minutes=LOOK_UP_AGAIN_MINUTES, failed_minutes=LOOK_UP_FAILED_MINUTES, limit=limit
        )
        return tuple(SlackId(row["team_id"], row["slack_user_id"]) for row in rows)

    async def end_look_up(self, who: SlackId) -> None:
        """Record that the person's profile was looked up; the next lookup is due after LOOK_UP_AGAIN_MINUTES."""
        await self._transactions.fetch(_END_LOOK_UP, team_id=who.team_id, slack_user_id=who.user_id)

    async def set_display_name(self, who: SlackId, display_name: str) -> None:
        """Store the person's display name, as Slack's profile has it."""
        await self._transactions.fetch(
            _SET_NAME, team_id=who.team_id, slack_user_id=who.user_id, display_name=display_name
        )
