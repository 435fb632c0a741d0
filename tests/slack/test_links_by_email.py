"""A link by e-mail holds while Slack confirms the address of a full member, and is looked at with each profile."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from fakes.conversations import open_conversation
from fakes.pooler import shared_address
from fakes.raw_sql import ExplainedTransactions, hold_rows, nodes_of, run_sql
from fakes.slack_delivery import IDENTITY, DeliveryStage, SlackStage, begun
from fakes.slack_double import TEAM, Person, Said, say
from fakes.slack_double.payloads import left, message
from throughline.db.connection.pool import ConnectionPool, PoolConfig, Statement
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.slack.maintenance import Maintenance
from throughline.slack.store.conversations import Asker
from throughline.slack.store.people import HAND_OVER, EmailLink, SlackId, guest_name

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
async def first_merged(stage: SlackStage) -> Said:
    """Anna has written once, as a guest."""
    said = say("hello")
    await stage.sender.once(message(said))
    return said


@pytest.fixture
async def guest(stage: SlackStage, first_merged: Said) -> UserId:
    del first_merged
    found = await stage.slack.people.find(MERGED_ANNA)
    assert found is not None
    return found.user_id


async def users_with_sessions(stage: SlackStage) -> list[tuple[object, ...]]:
    statement = """
        select u.name, count(distinct s.id), count(*) from sessions s join users u on u.id = s.owner_id
        join runs r on r.session_id = s.id and r.owner_id = s.owner_id group by 1
    """
    return await stage.rows(statement)


async def test_a_message_that_comes_while_its_writer_is_linked_is_the_users(stage: SlackStage, guest: UserId) -> None:
    await stage.database.memories.create(guest, "My cat is called Miso.", {})
    link = stage.slack.links.follow_email(MERGED_ANNA, "anna@example.com")
    late = stage.sender.once(message(say("and another thing")))

    async with hold_rows(stage.url, "select 1 from memories for update"):  # the last of what is handed over
        linking = await begun(stage, link, waiting=1)
        taking = await begun(stage, late, waiting=2)
    await asyncio.gather(linking, taking)

    assert await users_with_sessions(stage) == [("anna@example.com", 2, 2)]


async def test_a_link_made_while_a_message_is_taken_takes_it_along(stage: SlackStage, first_merged: Said) -> None:
    link = stage.slack.links.follow_email(MERGED_ANNA, "anna@example.com")
    late = stage.sender.once(message(say("and another thing", thread_ts=first_merged.ts)))

    async with hold_rows(stage.url, "select 1 from slack_conversations for update"):
        taking = await begun(stage, late, waiting=1)
        linking = await begun(stage, link, waiting=2)
    await asyncio.gather(linking, taking)

    assert await users_with_sessions(stage) == [("anna@example.com", 1, 2)]


async def test_the_memories_of_a_guest_come_along(stage: SlackStage) -> None:
    who = SlackId("T0DOUBLE1", "U0ANNA001")
    guest = await stage.database.users.get_or_create(guest_name(who))
    await stage.rows(
        "insert into slack_users (team_id, slack_user_id, user_id) values ('T0DOUBLE1', 'U0ANNA001', $1)", guest
    )
    anna = await stage.database.users.get_or_create("anna")
    await stage.database.memories.create(guest, "My cat is called Miso.", {})
    await stage.slack.links.link_by_code(who, await stage.slack.links.new_code(anna))

    assert await stage.rows("select 1 from memories where user_id = $1", anna) == [(1,)]


async def test_a_guest_and_a_user_who_used_the_same_idempotency_key_can_be_linked(stage: SlackStage) -> None:
    who = SlackId("T0DOUBLE1", "U0ANNA001")
    guest = await open_conversation(stage.database, guest_name(who))
    anna = await open_conversation(stage.database, "anna")
    await stage.rows(
        "insert into slack_users (team_id, slack_user_id, user_id) values ('T0DOUBLE1', 'U0ANNA001', $1)",
        guest.owner_id,
    )
    for conversation in (guest, anna):
        await conversation.submit("Hello", key="greeting-1")

    await stage.slack.links.link_by_code(who, await stage.slack.links.new_code(anna.owner_id))

    found = await stage.slack.people.find(who)
    assert found is not None
    assert found.user_id == anna.owner_id


async def test_a_guest_and_a_user_with_sessions_of_the_same_idempotency_key_can_be_linked(stage: SlackStage) -> None:
    who = SlackId("T0DOUBLE1", "U0ANNA001")
    guest = await open_conversation(stage.database, guest_name(who))
    anna = await open_conversation(stage.database, "anna")
    await stage.rows(
        "insert into slack_users (team_id, slack_user_id, user_id) values ('T0DOUBLE1', 'U0ANNA001', $1)",
        guest.owner_id,
    )
    await stage.rows("update sessions set idempotency_key = 'k1'")

    await stage.slack.links.link_by_code(who, await stage.slack.links.new_code(anna.owner_id))

    owned = await stage.rows("select id, idempotency_key from sessions where owner_id = $1", anna.owner_id)
    assert set(owned) == {(guest.session.id, None), (anna.session.id, "k1")}


RUNS_OF_OTHERS = """
    with made as (
        insert into sessions (id, owner_id, agent, source, metadata)
        select gen_random_uuid(), $1, 'assistant', 'api', '{}' from generate_series(1, 5000) returning id
    )
    insert into runs (id, session_id, owner_id, agent, input, source, status)
    select gen_random_uuid(), id, $1, 'assistant', '{"content": "Hi", "metadata": {}}', 'api', 'succeeded' from made
"""


@pytest.mark.parametrize("moved", HAND_OVER)
async def test_what_a_guest_hands_over_is_found_without_reading_what_others_have(
    database: Database, database_url: str, moved: Statement
) -> None:
    other = await open_conversation(database, owner="other")
    guest = await open_conversation(database, owner="guest")
    await guest.submit()
    await run_sql(database_url, RUNS_OF_OTHERS, other.owner_id)
    await run_sql(database_url, "analyze sessions, runs")
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    transactions = ExplainedTransactions(pool, moved.text)

    await transactions.fetch(moved, user_id=await database.users.get_or_create("anna"), guest_id=guest.owner_id)
    await pool.close()

    nodes = list(nodes_of(transactions.plan))
    assert not [node for node in nodes if node["Node Type"] == "Seq Scan" and node["Relation Name"] != "memories"]
    assert sum(float(str(node.get("Rows Removed by Filter", 0))) for node in nodes) < 10


async def test_a_guest_and_a_user_with_sessions_of_the_same_external_id_can_be_linked(stage: SlackStage) -> None:
    who = SlackId("T0DOUBLE1", "U0ANNA001")
    guest = await open_conversation(stage.database, guest_name(who))
    anna = await open_conversation(stage.database, "anna")
    await stage.rows(
        "insert into slack_users (team_id, slack_user_id, user_id) values ('T0DOUBLE1', 'U0ANNA001', $1)",
        guest.owner_id,
    )
    await stage.rows("update sessions set external_id = 'order 7'")

    await stage.slack.links.link_by_code(who, await stage.slack.links.new_code(anna.owner_id))

    owned = await stage.rows("select id, external_id from sessions where owner_id = $1", anna.owner_id)
    assert set(owned) == {(guest.session.id, None), (anna.session.id, "order 7")}


UNLINKED_ANNA, BERT = SlackId(TEAM, "U0ANNA001"), SlackId(TEAM, "U0BERT001")


async def link(stage: SlackStage, who: SlackId, user: UserId) -> None:
    await stage.slack.links.link_by_code(who, await stage.slack.links.new_code(user))


async def owned_unlinked(stage: SlackStage) -> list[tuple[object, ...]]:
    statement = """
        select u.name, r.input ->> 'content' from runs r join sessions s on s.id = r.session_id
        join users u on u.id = s.owner_id where s.owner_id = r.owner_id order by r.seq
    """
    return await stage.rows(statement)


async def taking_part(stage: SlackStage) -> list[tuple[object, ...]]:
    """Return who takes part in the channel's session."""
    statement = """
        select distinct u.name from slack_participants p
        join slack_users s using (team_id, slack_user_id) join users u on u.id = s.user_id order by 1
    """
    return await stage.rows(statement)


async def named(stage: SlackStage, who: SlackId) -> str:
    found = await stage.slack.people.find(who)
    assert found is not None
    return found.user_name


async def test_somebody_unlinked_leaves_what_they_wrote_and_goes_on_in_an_own_session(stage: SlackStage) -> None:
    said = say("as a guest")
    await stage.sender.once(message(said))
    anna = await stage.database.users.get_or_create("anna")
    await stage.database.memories.create(anna, "My cat is called Miso.", {})
    await link(stage, UNLINKED_ANNA, anna)
    await stage.sender.once(message(say("as anna", thread_ts=said.ts)))

    ended = await stage.slack.links.unlink_all("anna")
    await stage.sender.once(message(say("as a guest again", thread_ts=said.ts)))
    await stage.sender.once(message(say("and once more", thread_ts=said.ts)))

    assert ended == (UNLINKED_ANNA,)
    assert await owned_unlinked(stage) == [
        ("anna", "as a guest"),
        ("anna", "as anna"),
        (GUEST, "as a guest again"),
        (GUEST, "and once more"),
    ]
    assert await stage.rows("select count(distinct session_id) from runs") == [(2,)]
    assert await stage.rows("select 1 from memories where user_id <> $1", anna) == []


async def test_a_guest_takes_nothing_of_one_user_to_the_next(stage: SlackStage) -> None:
    await stage.sender.once(message(say("for anna")))
    for name in ("anna", "bert"):
        await link(stage, UNLINKED_ANNA, await stage.database.users.get_or_create(name))
        await stage.slack.links.unlink(UNLINKED_ANNA.user_id)
        await stage.sender.once(message(say(f"after {name}")))
    await link(stage, UNLINKED_ANNA, await stage.database.users.get_or_create("clara"))

    assert await owned_unlinked(stage) == [("anna", "for anna"), ("bert", "after anna"), ("clara", "after bert")]


async def test_somebody_unlinked_takes_their_part_in_a_channel_along_and_the_user_has_none(stage: SlackStage) -> None:
    said = say("<@U0THEBOT1> hello", channel="C0GENERAL")
    await stage.sender.once(message(said))
    anna = await stage.database.users.get_or_create("anna")
    await link(stage, UNLINKED_ANNA, anna)
    await stage.slack.links.unlink(UNLINKED_ANNA.user_id, TEAM)

    assert await taking_part(stage) == [(GUEST,)]
    ((session,),) = await stage.rows("select id from sessions")
    assert await stage.database.participants.owner_for(anna, session_id=SessionId(cast("UUID", session))) is None
    assert await stage.slack.conversations.latest(TEAM, "C0GENERAL", Asker(UNLINKED_ANNA, anna)) is None
    await stage.sender.once(left("C0GENERAL", user=UNLINKED_ANNA.user_id, home=TEAM))
    assert await taking_part(stage) == []


async def test_an_address_that_moves_takes_the_part_in_a_channel_along(stage: SlackStage) -> None:
    await stage.sender.once(message(say("<@U0THEBOT1> hello", channel="C0GENERAL")))
    for email in ("old@example.com", "new@example.com"):
        await stage.slack.links.follow_email(UNLINKED_ANNA, email)

    assert await taking_part(stage) == [("new@example.com",)]


async def test_a_user_keeps_the_part_that_they_have_by_another_slack_id(stage: SlackStage) -> None:
    anna = await stage.database.users.get_or_create("anna")
    said = say("<@U0THEBOT1> hello", channel="C0GENERAL")
    await stage.sender.once(message(said))
    await stage.sender.once(message(say("me too", channel="C0GENERAL", thread_ts=said.ts, user=BERT.user_id)))
    for who in (UNLINKED_ANNA, BERT):
        await link(stage, who, anna)

    await stage.slack.links.unlink(UNLINKED_ANNA.user_id)

    assert await taking_part(stage) == [("anna",), (GUEST,)]


async def test_who_was_unlinked_is_linked_again_by_a_code_and_by_no_address(stage: SlackStage) -> None:
    await stage.sender.once(message(say("mine")))
    await stage.slack.links.follow_email(UNLINKED_ANNA, "anna@example.com")
    await stage.slack.links.unlink(UNLINKED_ANNA.user_id)
    await stage.sender.once(message(say("still mine")))

    assert await stage.slack.links.follow_email(UNLINKED_ANNA, "anna@example.com") is EmailLink.AS_IT_WAS
    assert await named(stage, UNLINKED_ANNA) == GUEST
    await link(stage, UNLINKED_ANNA, await stage.database.users.get_or_create("anna"))
    assert await owned_unlinked(stage) == [("anna@example.com", "mine"), ("anna", "still mine")]


async def test_codes_of_the_user_work_no_more_after_an_unlink(stage: SlackStage) -> None:
    anna = await stage.database.users.get_or_create("anna")
    for unlink in (stage.slack.links.unlink(UNLINKED_ANNA.user_id), stage.slack.links.unlink_all("anna")):
        outstanding = await stage.slack.links.new_code(anna)
        await link(stage, UNLINKED_ANNA, anna)
        await unlink
        with pytest.raises(NotFound, match="code is unknown"):
            await stage.slack.links.link_by_code(UNLINKED_ANNA, outstanding)

    outstanding = await stage.slack.links.new_code(anna)
    with pytest.raises(NotFound, match="Codes that were made for this user are no longer valid"):
        await stage.slack.links.unlink_all("anna")
    with pytest.raises(NotFound, match="code is unknown"):
        await stage.slack.links.link_by_code(UNLINKED_ANNA, outstanding)


async def test_only_those_who_are_linked_can_be_unlinked(stage: SlackStage) -> None:
    anna = await stage.database.users.get_or_create("anna")
    await stage.sender.once(message(say("hello")))
    for unknown in ("U0ANNA001", "U0NOBODY1"):
        with pytest.raises(NotFound, match=unknown):
            await stage.slack.links.unlink(unknown)
    for team in (TEAM, "T0OTHER01"):
        await link(stage, SlackId(team, BERT.user_id), anna)
    with pytest.raises(InvalidInput, match=r"T0DOUBLE1:U0BERT001, T0OTHER01:U0BERT001"):
        await stage.slack.links.unlink(BERT.user_id)

    assert await stage.slack.links.unlink(BERT.user_id, "T0OTHER01") == SlackId("T0OTHER01", BERT.user_id)
    assert await stage.slack.links.unlink_all("anna") == (BERT,)
    for name, told in (("anna", "linked to 'anna'"), ("nobody", "no user 'nobody'")):
        with pytest.raises(NotFound, match=told):
            await stage.slack.links.unlink_all(name)
