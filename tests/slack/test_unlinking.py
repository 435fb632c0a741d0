"""Links that an operator ends: a guest again, who begins with nothing and whom only a code links."""

from typing import cast
from uuid import UUID

import pytest

from fakes.slack_double import TEAM, say
from fakes.slack_double.payloads import left, message
from fakes.slack_stage import SlackStage
from throughline.db.slack.conversations import Asker
from throughline.db.slack.people import SlackId
from throughline.db.slack.people_links import EmailLink
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import InvalidInput, NotFound

ANNA, BERT = SlackId(TEAM, "U0ANNA001"), SlackId(TEAM, "U0BERT001")
GUEST = f"slack:{TEAM}:U0ANNA001"


async def link(door: SlackStage, who: SlackId, user: UserId) -> None:
    await door.slack.links.link_by_code(who, await door.slack.links.new_code(user))


async def owned(door: SlackStage) -> list[tuple[object, ...]]:
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
    await link(door, ANNA, anna)
    await door.sender.once(message(say("as anna", thread_ts=said.ts)))

    ended = await door.slack.links.unlink_all("anna")
    await door.sender.once(message(say("as a guest again", thread_ts=said.ts)))
    await door.sender.once(message(say("and once more", thread_ts=said.ts)))

    assert ended == (ANNA,)
    assert await owned(door) == [
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
        await link(door, ANNA, await door.database.users.get_or_create(name))
        await door.slack.links.unlink(ANNA.user_id)
        await door.sender.once(message(say(f"after {name}")))
    await link(door, ANNA, await door.database.users.get_or_create("clara"))

    assert await owned(door) == [("anna", "for anna"), ("bert", "after anna"), ("clara", "after bert")]


async def test_somebody_unlinked_takes_their_part_in_a_channel_along_and_the_user_has_none(door: SlackStage) -> None:
    said = say("<@U0THEBOT1> hello", channel="C0GENERAL")
    await door.sender.once(message(said))
    anna = await door.database.users.get_or_create("anna")
    await link(door, ANNA, anna)
    await door.slack.links.unlink(ANNA.user_id, TEAM)

    assert await taking_part(door) == [(GUEST,)]
    ((session,),) = await door.rows("select id from sessions")
    assert await door.slack.participants.owner_for(anna, session_id=SessionId(cast("UUID", session))) is None
    assert await door.slack.conversations.latest(TEAM, "C0GENERAL", Asker(ANNA, anna)) is None
    await door.sender.once(left("C0GENERAL", user=ANNA.user_id, home=TEAM))
    assert await taking_part(door) == []


async def test_an_address_that_moves_takes_the_part_in_a_channel_along(door: SlackStage) -> None:
    await door.sender.once(message(say("<@U0THEBOT1> hello", channel="C0GENERAL")))
    for email in ("old@example.com", "new@example.com"):
        await door.slack.links.follow_email(ANNA, email)

    assert await taking_part(door) == [("new@example.com",)]


async def test_a_user_keeps_the_part_that_they_have_by_another_slack_id(door: SlackStage) -> None:
    anna = await door.database.users.get_or_create("anna")
    said = say("<@U0THEBOT1> hello", channel="C0GENERAL")
    await door.sender.once(message(said))
    await door.sender.once(message(say("me too", channel="C0GENERAL", thread_ts=said.ts, user=BERT.user_id)))
    for who in (ANNA, BERT):
        await link(door, who, anna)

    await door.slack.links.unlink(ANNA.user_id)

    assert await taking_part(door) == [("anna",), (GUEST,)]


async def test_who_was_unlinked_is_linked_again_by_a_code_and_by_no_address(door: SlackStage) -> None:
    await door.sender.once(message(say("mine")))
    await door.slack.links.follow_email(ANNA, "anna@example.com")
    await door.slack.links.unlink(ANNA.user_id)
    await door.sender.once(message(say("still mine")))

    assert await door.slack.links.follow_email(ANNA, "anna@example.com") is EmailLink.AS_IT_WAS
    assert await named(door, ANNA) == GUEST
    await link(door, ANNA, await door.database.users.get_or_create("anna"))
    assert await owned(door) == [("anna@example.com", "mine"), ("anna", "still mine")]


async def test_codes_of_the_user_work_no_more_after_an_unlink(door: SlackStage) -> None:
    anna = await door.database.users.get_or_create("anna")
    for unlink in (door.slack.links.unlink(ANNA.user_id), door.slack.links.unlink_all("anna")):
        outstanding = await door.slack.links.new_code(anna)
        await link(door, ANNA, anna)
        await unlink
        with pytest.raises(NotFound, match="code is unknown"):
            await door.slack.links.link_by_code(ANNA, outstanding)

    outstanding = await door.slack.links.new_code(anna)
    with pytest.raises(NotFound, match="Codes that were made for this user are no longer valid"):
        await door.slack.links.unlink_all("anna")
    with pytest.raises(NotFound, match="code is unknown"):
        await door.slack.links.link_by_code(ANNA, outstanding)


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
