"""People of Slack workspaces: guest users with a history of their own until they are linked to a user."""

import hashlib
import secrets
from dataclasses import dataclass
from enum import StrEnum

from throughline.db.connection.transactions import Repository, Statements
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import UserId
from throughline.domain.errors import InvalidInput, NotFound

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
_DROP_USER = sql("delete from users where id = :id")

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

    Waits for a link that is under way, and reads the person's user afterwards. Of a person without a row it waits for
    the row of their guest (`ensure_user`), as lock_person does.
    """
    if not await tx.fetch(_HOLD_PERSON, team_id=who.team_id, slack_user_id=who.user_id):
        await ensure_person(tx, who)
        await tx.fetch(_HOLD_PERSON, team_id=who.team_id, slack_user_id=who.user_id)
    return await ensure_person(tx, who)


async def lock_person(tx: Statements, who: SlackId) -> None:
    """Wait for transactions that accept a message of this person, even their first.

    Later ones wait until this transaction ends. A person without a row is locked by the unique name of their guest.
    """
    if not await tx.fetch(LOCK_PERSON, team_id=who.team_id, slack_user_id=who.user_id):
        await _lock_guest_name(tx, who)
        await tx.fetch(LOCK_PERSON, team_id=who.team_id, slack_user_id=who.user_id)


async def _lock_guest_name(tx: Statements, who: SlackId) -> None:
    """Lock the name of the person's guest, also if nobody has it: others wait to insert it until this one has ended.

    A user inserted for this alone is deleted at once, and no other transaction ever sees it.
    """
    made = new_id()
    found = (await tx.fetch(_ENSURE_USER, id=made, name=guest_name(who)))[0]["id"]
    if found == made:
        await tx.fetch(_DROP_USER, id=made)


class SlackPeople(Repository):
    """Lookups of Slack people and their profiles."""

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


CODE_BYTES = 12
CODE_MINUTES = 30

_LINK = sql("""
    update slack_users set user_id = :user_id, linked_by = :linked_by
    where team_id = :team_id and slack_user_id = :slack_user_id
""")
_USER_NAMED = sql("select id from users where name = :name")
_LINKED_TO = sql("""
    select team_id, slack_user_id from slack_users where user_id = :user_id and linked_by in ('email', 'code')
    order by team_id, slack_user_id for update
""")
_NAMED = sql("""
    select team_id, slack_user_id, linked_by, user_id from slack_users
    where slack_user_id = :slack_user_id and team_id = coalesce(nullif(:team_id, ''), team_id)
    order by team_id for update
""")
HAND_OVER = (
    sql("""
        update runs r set idempotency_key = null where r.owner_id = :guest_id and r.idempotency_key in (
            select k.idempotency_key from runs k where k.owner_id = :user_id and k.idempotency_key is not null)
    """),
    sql("""
        update runs r set owner_id = :user_id from sessions s
        where s.owner_id = :guest_id and r.session_id = s.id and r.owner_id = :guest_id
    """),
    sql("""
        update sessions s set idempotency_key = null where s.owner_id = :guest_id and s.idempotency_key in (
            select k.idempotency_key from sessions k where k.owner_id = :user_id and k.idempotency_key is not null)
    """),
    sql("""
        update sessions s set external_id = null where s.owner_id = :guest_id and s.external_id in (
            select k.external_id from sessions k where k.owner_id = :user_id and k.external_id is not null)
    """),
    sql("update sessions set owner_id = :user_id where owner_id = :guest_id"),
    sql("update memories set user_id = :user_id where user_id = :guest_id"),
)
"""Statements that move a guest's runs, sessions and memories to a user.

If guest and user have used the same idempotency key or external id, the user keeps it and the guest's is cleared. Runs
are found by their sessions, because no index has the owners of all runs.
"""

_ADD_CODE = sql("""
    insert into slack_link_codes (code_hash, user_id, expires_at)
    values (:code_hash, :user_id, now() + make_interval(mins => :minutes))
""")
_TAKE_CODE = sql("""
    delete from slack_link_codes c using users u where c.code_hash = :code_hash and u.id = c.user_id
    returning c.user_id, u.name as user_name, c.expires_at > now() as ok
""")
_DROP_CODES = sql("delete from slack_link_codes where user_id = :user_id")

GUESTS = frozenset({"guest", "unlinked"})


@dataclass(frozen=True, slots=True)
class CodeLink:
    """The user that a code linked a Slack person to.

    `was_guest`: the person was not linked before, and their sessions, runs and memories moved to that user.
    """

    user_name: str
    was_guest: bool


class EmailLink(StrEnum):
    """The change of a Slack person's link by e-mail address.

    AS_IT_WAS: nothing changed. MADE: a guest was linked. MOVED: the person is now linked to the user of another
    address. ENDED: the person is a guest again.
    """

    AS_IT_WAS = "as_it_was"
    MADE = "made"
    MOVED = "moved"
    ENDED = "ended"


class PeopleLinks(Repository):
    """Creation and end of links between Slack people and users."""

    async def follow_email(self, who: SlackId, email: str) -> EmailLink:
        """Update the person's link by e-mail; `email` is their confirmed address, '' for none.

        A guest becomes the user with this address. A person linked by another address becomes the new address's user,
        or a guest without an address. Their history stays with the former user. A person linked by a code or unlinked
        by hand is unchanged.
        """
        return await self._transactions.run(lambda tx: _follow_email(tx, who, email))

    async def new_code(self, user_id: UserId) -> str:
        """Return a one-time code that links a Slack person to this user; it is valid for CODE_MINUTES."""
        code = secrets.token_urlsafe(CODE_BYTES)
        await self._transactions.fetch(_ADD_CODE, code_hash=_hash(code), user_id=user_id, minutes=CODE_MINUTES)
        return code

    async def link_by_code(self, who: SlackId, code: str) -> CodeLink:
        """Link the Slack person to the code's user. Raises NotFound for an unknown, used or expired code.

        A guest's sessions, runs and memories move to the user.
        """
        return await self._transactions.run(lambda tx: _link_by_code(tx, who, code))

    async def unlink(self, slack_user_id: str, team_id: str = "") -> SlackId:
        """End a Slack person's link; they become a guest with an empty history, whom only a code can link again.

        With `team_id` only that workspace's person is meant. All codes of their former user become invalid. Raises
        NotFound if the person is not linked, and InvalidInput if several workspaces have the id.
        """
        return await self._transactions.run(lambda tx: _unlink(tx, slack_user_id, team_id))

    async def unlink_all(self, user_name: str) -> tuple[SlackId, ...]:
        """End the links of all Slack people linked to this user, as `unlink` does; return them.

        Raises NotFound if there is no such user or nobody is linked to them; their codes become invalid even then.
        """
        linked = await self._transactions.run(lambda tx: _unlink_all(tx, user_name))
        if not linked:
            raise NotFound(
                f"No Slack user is linked to {user_name!r}. Codes that were made for this user are no longer valid."
            )
        return linked


async def _follow_email(tx: Statements, who: SlackId, email: str) -> EmailLink:
    rows = await tx.fetch(LOCK_PERSON, team_id=who.team_id, slack_user_id=who.user_id)
    person = await find_person(tx, who)
    if person is None:
        return EmailLink.AS_IT_WAS
    match rows[0]["linked_by"]:
        case "guest" if email:
            await _link(tx, who, person.user_id, (await ensure_user(tx, email), "email"))
            return EmailLink.MADE
        case "email" if email and email != person.user_name:
            await _link(tx, who, None, (await ensure_user(tx, email), "email"))
            return EmailLink.MOVED
        case "email" if not email:
            await _end_link(tx, who, "guest")
            return EmailLink.ENDED
        case _:
            return EmailLink.AS_IT_WAS


async def _link_by_code(tx: Statements, who: SlackId, code: str) -> CodeLink:
    """Link the person by a code. The person's row is locked before the code's, as wherever links are ended."""
    await ensure_person(tx, who)
    rows = await tx.fetch(LOCK_PERSON, team_id=who.team_id, slack_user_id=who.user_id)
    taken = await tx.fetch(_TAKE_CODE, code_hash=_hash(code))
    if not taken or not taken[0]["ok"]:
        raise NotFound("This code is unknown, used or too old. Make a new one: `throughline slack link --user NAME`.")
    was = UserId(rows[0]["user_id"]) if rows[0]["linked_by"] in GUESTS else None
    await _link(tx, who, was, (UserId(taken[0]["user_id"]), "code"))
    return CodeLink(taken[0]["user_name"], was_guest=was is not None)


async def _link(tx: Statements, who: SlackId, guest_id: UserId | None, to: tuple[UserId, str]) -> None:
    """Link the person to the user, and record how. The guest's sessions, runs and memories move to the user.

    `guest_id` is None if the person was no guest, so that nothing moves. `to` is the user and the value of `linked_by`.
    """
    user_id, linked_by = to
    await tx.fetch(_LINK, team_id=who.team_id, slack_user_id=who.user_id, user_id=user_id, linked_by=linked_by)
    if guest_id is None or guest_id == user_id:
        return
    for statement in HAND_OVER:
        await tx.fetch(statement, user_id=user_id, guest_id=guest_id)


async def _unlink(tx: Statements, slack_user_id: str, team_id: str) -> SlackId:
    rows = await tx.fetch(_NAMED, slack_user_id=slack_user_id, team_id=team_id)
    if not rows:
        raise NotFound(f"No Slack user {slack_user_id!r} has written here. Their id begins with U or W.")
    if len(rows) > 1:
        names = ", ".join(f"{row['team_id']}:{slack_user_id}" for row in rows)
        raise InvalidInput(f"There are several. Name one of {names}.", field="slack_user")
    who = SlackId(rows[0]["team_id"], slack_user_id)
    if rows[0]["linked_by"] in GUESTS:
        raise NotFound(f"The Slack user {slack_user_id!r} is linked to nobody.")
    await tx.fetch(_DROP_CODES, user_id=rows[0]["user_id"])
    await _end_link(tx, who, "unlinked")
    return who


async def _unlink_all(tx: Statements, user_name: str) -> tuple[SlackId, ...]:
    users = await tx.fetch(_USER_NAMED, name=user_name)
    if not users:
        raise NotFound(f"There is no user {user_name!r}.")
    user_id = UserId(users[0]["id"])
    linked = await _end_links(tx, user_id)
    await tx.fetch(_DROP_CODES, user_id=user_id)
    return linked + await _end_links(tx, user_id)  # again, for a code that was being used meanwhile


async def _end_links(tx: Statements, user_id: UserId) -> tuple[SlackId, ...]:
    rows = await tx.fetch(_LINKED_TO, user_id=user_id)
    linked = tuple(SlackId(row["team_id"], row["slack_user_id"]) for row in rows)
    for who in linked:
        await _end_link(tx, who, "unlinked")
    return linked


async def _end_link(tx: Statements, who: SlackId, linked_by: str) -> None:
    """Make the person a guest again, with an empty history, since a guest's history was handed over at linking."""
    await _link(tx, who, None, (await ensure_user(tx, guest_name(who)), linked_by))


def _hash(code: str) -> bytes:
    return hashlib.sha256(code.strip().encode("utf-8", "replace")).digest()
