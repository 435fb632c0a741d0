"""A link by e-mail holds while Slack confirms the address of a full member, and is looked at with each profile."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from fakes.conversations import open_conversation
from fakes.raw_sql import hold_rows
from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import TEAM, Person, Said, say
from fakes.slack_double.payloads import left, message
from fakes.slack_stage import IDENTITY, SlackStage, begun
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.slack.maintenance import Maintenance
from throughline.slack.store.conversations import Asker
from throughline.slack.store.people import SlackId, guest_name
from throughline.slack.store.people_links import EmailLink

ANNA = Person("U0ANNA001", "Anna", "anna@example.com")
GUEST = f"slack:{TEAM}:U0ANNA001"
Look = Callable[..., Awaitable[None]]


@pytest.fixture
def look(outgoing: DeliveryStage) -> Look:
    async def look_at(person: Person | None, *, link_by_email: bool = True) -> None:
        """Have a day pass and the profile looked up as it is now."""
        people = outgoing.double.workspace.people
        people.clear()
        if person is not None:
            people[person.id] = person
        await outgoing.rows("update slack_users set looked_up_at = null")
        calls = outgoing.services.calls
        await Maintenance(outgoing.slack, calls, outgoing.clock, IDENTITY, link_by_email=link_by_email).run_once()

    return look_at


@pytest.fixture
async def first(outgoing: DeliveryStage, look: Look) -> Said:
    """Anna has written as a guest and was linked by her address."""
    said = say("mine")
    await outgoing.take(said)
    await look(ANNA)
    assert await who_is_anna(outgoing) == [("anna@example.com", "email")]
    return said


async def who_is_anna(outgoing: DeliveryStage) -> list[tuple[object, ...]]:
    return await outgoing.rows("select u.name, p.linked_by from slack_users p join users u on u.id = p.user_id")


async def owned(outgoing: DeliveryStage) -> list[tuple[object, ...]]:
    statement = """
        select u.name, r.input ->> 'content' from runs r join sessions s on s.id = r.session_id
        join users u on u.id = s.owner_id where s.owner_id = r.owner_id order by r.seq
    """
    return await outgoing.rows(statement)


NO_LONGER = {
    "unconfirmed": replace(ANNA, is_email_confirmed=False),
    "a guest": replace(ANNA, flags=("is_restricted",)),
    "a guest of one channel": replace(ANNA, flags=("is_restricted", "is_ultra_restricted")),
    "deleted": replace(ANNA, flags=("deleted",)),
    "a bot": replace(ANNA, flags=("is_bot",)),
    "elsewhere": replace(ANNA, team="T0OTHER01"),
    "unknown": None,
}


@pytest.mark.parametrize("now", NO_LONGER.values(), ids=NO_LONGER.keys())
async def test_somebody_whose_address_is_no_longer_confirmed_is_a_guest_with_own_history(
    outgoing: DeliveryStage, first: Said, look: Look, now: Person | None
) -> None:
    await look(now)
    await outgoing.take(say("and now?", thread_ts=first.ts))

    assert await who_is_anna(outgoing) == [(GUEST, "guest")]
    assert await owned(outgoing) == [("anna@example.com", "mine"), (GUEST, "and now?")]


async def test_somebody_with_another_address_is_its_user_and_leaves_what_they_wrote(
    outgoing: DeliveryStage, first: Said, look: Look
) -> None:
    await look(replace(ANNA, email="Anna.Ray@example.com"))
    await outgoing.take(say("and now?", thread_ts=first.ts))

    assert await who_is_anna(outgoing) == [("anna.ray@example.com", "email")]
    assert await owned(outgoing) == [("anna@example.com", "mine"), ("anna.ray@example.com", "and now?")]


async def test_a_guest_whose_address_is_confirmed_again_takes_along_what_they_wrote(
    outgoing: DeliveryStage, first: Said, look: Look
) -> None:
    await look(replace(ANNA, is_email_confirmed=False))
    await outgoing.take(say("in between", thread_ts=first.ts))
    await look(ANNA)

    assert await owned(outgoing) == [("anna@example.com", "mine"), ("anna@example.com", "in between")]


@pytest.mark.usefixtures("first")
async def test_a_link_stays_where_nothing_changed_or_slack_does_not_tell_the_address(
    outgoing: DeliveryStage, look: Look
) -> None:
    await look(ANNA)
    await look(replace(ANNA, email=""))  # as for an app without the scope users:read.email

    assert await who_is_anna(outgoing) == [("anna@example.com", "email")]


@pytest.mark.usefixtures("first")
async def test_links_stay_as_they_are_where_the_setting_is_off(outgoing: DeliveryStage, look: Look) -> None:
    await look(replace(ANNA, flags=("deleted",)), link_by_email=False)

    assert await who_is_anna(outgoing) == [("anna@example.com", "email")]


@pytest.mark.usefixtures("first")
async def test_changes_are_logged_without_addresses(look: Look) -> None:
    with capture_logs() as logs:
        await look(replace(ANNA, email="anna.ray@example.com"))
        await look(replace(ANNA, flags=("deleted",)))

    told = [(entry["slack_user"], entry["outcome"]) for entry in logs]
    assert told == [("U0ANNA001", "moved"), ("U0ANNA001", "ended")]
    assert "example.com" not in str(logs)


MERGED_ANNA = SlackId(TEAM, "U0ANNA001")


@pytest.fixture
async def first_merged(door: SlackStage) -> Said:
    """Anna has written once, as a guest."""
    said = say("hello")
    await door.sender.once(message(said))
    return said


@pytest.fixture
async def guest(door: SlackStage, first_merged: Said) -> UserId:
    del first_merged
    found = await door.slack.people.find(MERGED_ANNA)
    assert found is not None
    return found.user_id


async def users_with_sessions(door: SlackStage) -> list[tuple[object, ...]]:
    statement = """
        select u.name, count(distinct s.id), count(*) from sessions s join users u on u.id = s.owner_id
        join runs r on r.session_id = s.id and r.owner_id = s.owner_id group by 1
    """
    return await door.rows(statement)


async def test_a_message_that_comes_while_its_writer_is_linked_is_the_users(door: SlackStage, guest: UserId) -> None:
    await door.database.memories.create(guest, "My cat is called Miso.", {})
    link = door.slack.links.follow_email(MERGED_ANNA, "anna@example.com")
    late = door.sender.once(message(say("and another thing")))

    async with hold_rows(door.url, "select 1 from memories for update"):  # the last of what is handed over
        linking = await begun(door, link, waiting=1)
        taking = await begun(door, late, waiting=2)
    await asyncio.gather(linking, taking)

    assert await users_with_sessions(door) == [("anna@example.com", 2, 2)]


async def test_a_link_made_while_a_message_is_taken_takes_it_along(door: SlackStage, first_merged: Said) -> None:
    link = door.slack.links.follow_email(MERGED_ANNA, "anna@example.com")
    late = door.sender.once(message(say("and another thing", thread_ts=first_merged.ts)))

    async with hold_rows(door.url, "select 1 from slack_conversations for update"):
        taking = await begun(door, late, waiting=1)
        linking = await begun(door, link, waiting=2)
    await asyncio.gather(linking, taking)

    assert await users_with_sessions(door) == [("anna@example.com", 1, 2)]


async def test_the_memories_of_a_guest_come_along(door: SlackStage) -> None:
    who = SlackId("T0DOUBLE1", "U0ANNA001")
    guest = await door.database.users.get_or_create(guest_name(who))
    await door.rows(
        "insert into slack_users (team_id, slack_user_id, user_id) values ('T0DOUBLE1', 'U0ANNA001', $1)", guest
    )
    anna = await door.database.users.get_or_create("anna")
    await door.database.memories.create(guest, "My cat is called Miso.", {})
    await door.slack.links.link_by_code(who, await door.slack.links.new_code(anna))

    assert await door.rows("select 1 from memories where user_id = $1", anna) == [(1,)]


async def test_a_guest_and_a_user_who_used_the_same_idempotency_key_can_be_linked(door: SlackStage) -> None:
    who = SlackId("T0DOUBLE1", "U0ANNA001")
    guest = await open_conversation(door.database, guest_name(who))
    anna = await open_conversation(door.database, "anna")
    await door.rows(
        "insert into slack_users (team_id, slack_user_id, user_id) values ('T0DOUBLE1', 'U0ANNA001', $1)",
        guest.owner_id,
    )
    for conversation in (guest, anna):
        await conversation.submit("Hello", key="greeting-1")

    await door.slack.links.link_by_code(who, await door.slack.links.new_code(anna.owner_id))

    found = await door.slack.people.find(who)
    assert found is not None
    assert found.user_id == anna.owner_id


async def test_a_guest_and_a_user_with_sessions_of_the_same_idempotency_key_can_be_linked(door: SlackStage) -> None:
    who = SlackId("T0DOUBLE1", "U0ANNA001")
    guest = await open_conversation(door.database, guest_name(who))
    anna = await open_conversation(door.database, "anna")
    await door.rows(
        "insert into slack_users (team_id, slack_user_id, user_id) values ('T0DOUBLE1', 'U0ANNA001', $1)",
        guest.owner_id,
    )
    await door.rows("update sessions set idempotency_key = 'k1'")

    await door.slack.links.link_by_code(who, await door.slack.links.new_code(anna.owner_id))

    owned = await door.rows("select id, idempotency_key from sessions where owner_id = $1", anna.owner_id)
    assert set(owned) == {(guest.session.id, None), (anna.session.id, "k1")}


async def test_a_guest_and_a_user_with_sessions_of_the_same_external_id_can_be_linked(door: SlackStage) -> None:
    who = SlackId("T0DOUBLE1", "U0ANNA001")
    guest = await open_conversation(door.database, guest_name(who))
    anna = await open_conversation(door.database, "anna")
    await door.rows(
        "insert into slack_users (team_id, slack_user_id, user_id) values ('T0DOUBLE1', 'U0ANNA001', $1)",
        guest.owner_id,
    )
    await door.rows("update sessions set external_id = 'order 7'")

    await door.slack.links.link_by_code(who, await door.slack.links.new_code(anna.owner_id))

    owned = await door.rows("select id, external_id from sessions where owner_id = $1", anna.owner_id)
    assert set(owned) == {(guest.session.id, None), (anna.session.id, "order 7")}


UNLINKED_ANNA, BERT = SlackId(TEAM, "U0ANNA001"), SlackId(TEAM, "U0BERT001")


async def link(door: SlackStage, who: SlackId, user: UserId) -> None:
    await door.slack.links.link_by_code(who, await door.slack.links.new_code(user))


async def owned_unlinked(door: SlackStage) -> list[tuple[object, ...]]:
    statement = """
        select u.name, r.input ->> 'content' from runs r join sessions s on s.id = r.session_id
        join users u on u.id = s.owner_id where s.owner_id = r.owner_id order by r.seq
    """
    return await door.rows(statement)


async def taking_part(door: SlackStage) -> list[tuple[object, ...]]:
    """Return who takes part in the channel's session."""
    statement = """
        select distinct u.name from slack_participants p
        join slack_users s using (team_id, slack_user_id) join users u on u.id = s.user_id order by 1
    """
    return await door.rows(statement)


async def named(door: SlackStage, who: SlackId) -> str:
    found = await door.slack.people.find(who)
    assert found is not None
    return found.user_name


async def test_somebody_unlinked_leaves_what_they_wrote_and_goes_on_in_an_own_session(door: SlackStage) -> None:
    said = say("as a guest")
    await door.sender.once(message(said))
    anna = await door.database.users.get_or_create("anna")
    await door.database.memories.create(anna, "My cat is called Miso.", {})
    await link(door, UNLINKED_ANNA, anna)
    await door.sender.once(message(say("as anna", thread_ts=said.ts)))

    ended = await door.slack.links.unlink_all("anna")
    await door.sender.once(message(say("as a guest again", thread_ts=said.ts)))
    await door.sender.once(message(say("and once more", thread_ts=said.ts)))

    assert ended == (UNLINKED_ANNA,)
    assert await owned_unlinked(door) == [
        ("anna", "as a guest"),
        ("anna", "as anna"),
        (GUEST, "as a guest again"),
        (GUEST, "and once more"),
    ]
    assert await door.rows("select count(distinct session_id) from runs") == [(2,)]
    assert await door.rows("select 1 from memories where user_id <> $1", anna) == []


async def test_a_guest_takes_nothing_of_one_user_to_the_next(door: SlackStage) -> None:
    await door.sender.once(message(say("for anna")))
    for name in ("anna", "bert"):
        await link(door, UNLINKED_ANNA, await door.database.users.get_or_create(name))
        await door.slack.links.unlink(UNLINKED_ANNA.user_id)
        await door.sender.once(message(say(f"after {name}")))
    await link(door, UNLINKED_ANNA, await door.database.users.get_or_create("clara"))

    assert await owned_unlinked(door) == [("anna", "for anna"), ("bert", "after anna"), ("clara", "after bert")]


async def test_somebody_unlinked_takes_their_part_in_a_channel_along_and_the_user_has_none(door: SlackStage) -> None:
    said = say("<@U0THEBOT1> hello", channel="C0GENERAL")
    await door.sender.once(message(said))
    anna = await door.database.users.get_or_create("anna")
    await link(door, UNLINKED_ANNA, anna)
    await door.slack.links.unlink(UNLINKED_ANNA.user_id, TEAM)

    assert await taking_part(door) == [(GUEST,)]
    ((session,),) = await door.rows("select id from sessions")
    assert await door.database.participants.owner_for(anna, session_id=SessionId(cast("UUID", session))) is None
    assert await door.slack.conversations.latest(TEAM, "C0GENERAL", Asker(UNLINKED_ANNA, anna)) is None
    await door.sender.once(left("C0GENERAL", user=UNLINKED_ANNA.user_id, home=TEAM))
    assert await taking_part(door) == []


async def test_an_address_that_moves_takes_the_part_in_a_channel_along(door: SlackStage) -> None:
    await door.sender.once(message(say("<@U0THEBOT1> hello", channel="C0GENERAL")))
    for email in ("old@example.com", "new@example.com"):
        await door.slack.links.follow_email(UNLINKED_ANNA, email)

    assert await taking_part(door) == [("new@example.com",)]


async def test_a_user_keeps_the_part_that_they_have_by_another_slack_id(door: SlackStage) -> None:
    anna = await door.database.users.get_or_create("anna")
    said = say("<@U0THEBOT1> hello", channel="C0GENERAL")
    await door.sender.once(message(said))
    await door.sender.once(message(say("me too", channel="C0GENERAL", thread_ts=said.ts, user=BERT.user_id)))
    for who in (UNLINKED_ANNA, BERT):
        await link(door, who, anna)

    await door.slack.links.unlink(UNLINKED_ANNA.user_id)

    assert await taking_part(door) == [("anna",), (GUEST,)]


async def test_who_was_unlinked_is_linked_again_by_a_code_and_by_no_address(door: SlackStage) -> None:
    await door.sender.once(message(say("mine")))
    await door.slack.links.follow_email(UNLINKED_ANNA, "anna@example.com")
    await door.slack.links.unlink(UNLINKED_ANNA.user_id)
    await door.sender.once(message(say("still mine")))

    assert await door.slack.links.follow_email(UNLINKED_ANNA, "anna@example.com") is EmailLink.AS_IT_WAS
    assert await named(door, UNLINKED_ANNA) == GUEST
    await link(door, UNLINKED_ANNA, await door.database.users.get_or_create("anna"))
    assert await owned_unlinked(door) == [("anna@example.com", "mine"), ("anna", "still mine")]


async def test_codes_of_the_user_work_no_more_after_an_unlink(door: SlackStage) -> None:
    anna = await door.database.users.get_or_create("anna")
    for unlink in (door.slack.links.unlink(UNLINKED_ANNA.user_id), door.slack.links.unlink_all("anna")):
        outstanding = await door.slack.links.new_code(anna)
        await link(door, UNLINKED_ANNA, anna)
        await unlink
        with pytest.raises(NotFound, match="code is unknown"):
            await door.slack.links.link_by_code(UNLINKED_ANNA, outstanding)

    outstanding = await door.slack.links.new_code(anna)
    with pytest.raises(NotFound, match="Codes that were made for this user are no longer valid"):
        await door.slack.links.unlink_all("anna")
    with pytest.raises(NotFound, match="code is unknown"):
        await door.slack.links.link_by_code(UNLINKED_ANNA, outstanding)


async def test_only_those_who_are_linked_can_be_unlinked(door: SlackStage) -> None:
    anna = await door.database.users.get_or_create("anna")
    await door.sender.once(message(say("hello")))
    for unknown in ("U0ANNA001", "U0NOBODY1"):
        with pytest.raises(NotFound, match=unknown):
            await door.slack.links.unlink(unknown)
    for team in (TEAM, "T0OTHER01"):
        await link(door, SlackId(team, BERT.user_id), anna)
    with pytest.raises(InvalidInput, match=r"T0DOUBLE1:U0BERT001, T0OTHER01:U0BERT001"):
        await door.slack.links.unlink(BERT.user_id)

    assert await door.slack.links.unlink(BERT.user_id, "T0OTHER01") == SlackId("T0OTHER01", BERT.user_id)
    assert await door.slack.links.unlink_all("anna") == (BERT,)
    for name, told in (("anna", "linked to 'anna'"), ("nobody", "no user 'nobody'")):
        with pytest.raises(NotFound, match=told):
            await door.slack.links.unlink_all(name)
