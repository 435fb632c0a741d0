"""A message that is taken while its writer becomes another user: one waits for the other, and nothing stays behind."""

import asyncio

import pytest

from fakes.raw_sql import hold_rows
from fakes.slack_double import TEAM, Said, say
from fakes.slack_double.payloads import message
from fakes.slack_stage import SlackStage, begun
from throughline.db.slack.people import SlackId
from throughline.domain.basic_types import UserId

ANNA = SlackId(TEAM, "U0ANNA001")


@pytest.fixture
async def first(door: SlackStage) -> Said:
    """Anna has written once, as a guest."""
    said = say("hello")
    await door.sender.once(message(said))
    return said


@pytest.fixture
async def guest(door: SlackStage, first: Said) -> UserId:
    del first
    found = await door.slack.people.find(ANNA)
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
    link = door.slack.links.follow_email(ANNA, "anna@example.com")
    late = door.sender.once(message(say("and another thing")))

    async with hold_rows(door.url, "select 1 from memories for update"):  # the last of what is handed over
        linking = await begun(door, link, waiting=1)
        taking = await begun(door, late, waiting=2)
    await asyncio.gather(linking, taking)

    assert await users_with_sessions(door) == [("anna@example.com", 2, 2)]


async def test_a_link_made_while_a_message_is_taken_takes_it_along(door: SlackStage, first: Said) -> None:
    link = door.slack.links.follow_email(ANNA, "anna@example.com")
    late = door.sender.once(message(say("and another thing", thread_ts=first.ts)))

    async with hold_rows(door.url, "select 1 from slack_conversations for update"):
        taking = await begun(door, late, waiting=1)
        linking = await begun(door, link, waiting=2)
    await asyncio.gather(linking, taking)

    assert await users_with_sessions(door) == [("anna@example.com", 1, 2)]
