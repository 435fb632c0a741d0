"""What a guest of Slack has comes along when they become a user: memories too, and keys both used are no hindrance."""

from fakes.conversations import open_conversation
from fakes.slack_stage import SlackStage
from throughline.db.slack.people import SlackId, guest_name


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
