"""Those who take part in a channel's session may read it and write to it over REST; nobody else sees that it exists."""

from uuid import UUID

import httpx
import pytest

from fakes.api_stage import KEYED, ApiStage, set_stage
from fakes.slack_double import TEAM
from fakes.slack_double.payloads import fresh_ts
from fakes.slack_inbox import take
from throughline.db.database import Database
from throughline.db.slack.inbox import AcceptOutcome
from throughline.db.slack.people import SlackId
from throughline.db.slack.slack_events import SlackLocation, SlackMessage
from throughline.domain.basic_types import UserId

CHANNEL = "C0GENERAL"


@pytest.fixture
def shared(database: Database) -> ApiStage:
    return set_stage(database, KEYED)


async def linked(stage: ApiStage, slack_user: str, name: str) -> UserId:
    """Make somebody in Slack the user of this name."""
    links = stage.database.open_slack("assistant").links
    user = await stage.database.users.get_or_create(name)
    await links.link_by_code(SlackId(TEAM, slack_user), await links.new_code(user))
    return user


async def test_participants_read_and_write_and_own_nothing(shared: ApiStage) -> None:
    await linked(shared, "U0ANNA001", "anna")
    await linked(shared, "U0BERT001", "bert")
    session = await take(shared.database, "hello", channel=CHANNEL, user="U0ANNA001")
    await take(shared.database, "me too", channel=CHANNEL, user="U0BERT001", thread=True)
    path = f"/v1/sessions/{session}"
    async with shared.client(key=await shared.key("bert")) as client:
        read = await client.get(path)
        sent = await client.post(f"{path}/messages", json={"content": "over REST"}, headers={"Prefer": "respond-async"})
        run = await client.get(f"/v1/runs/{sent.json()['run']['id']}")
        refused = [await client.patch(path, json={"title": "mine"}), await client.delete(path)]
        listed = (await client.get("/v1/sessions")).json()["data"]

    assert (read.status_code, sent.status_code, run.status_code) == (200, 202, 200)
    assert run.json()["author"] == "bert"
    assert [answer.status_code for answer in refused] == [httpx.codes.NOT_FOUND] * 2
    assert listed == []


async def test_a_participants_access_token_serves_the_shared_session(shared: ApiStage) -> None:
    await linked(shared, "U0BERT001", "bert")
    session = await take(shared.database, "hello", channel=CHANNEL, user="U0BERT001")
    async with shared.client(key=await shared.key("bert")) as bert:
        made = await bert.post("/v1/tokens", json={"session_ids": [str(session)]})
        foreign = await bert.post("/v1/tokens", json={"session_ids": [str(UUID(int=7))]})
    async with shared.client(key=made.json()["token"]) as page:
        read = await page.get(f"/v1/sessions/{session}")
        changed = await page.patch(f"/v1/sessions/{session}", json={"title": "mine"})

    assert (made.status_code, foreign.status_code, read.status_code, changed.status_code) == (201, 404, 200, 404)


async def test_no_idempotency_key_of_a_participant_stands_in_the_way_of_a_message(shared: ApiStage) -> None:
    await linked(shared, "U0BERT001", "bert")
    session = await take(shared.database, "hello", channel=CHANNEL, user="U0BERT001")
    place = SlackLocation(TEAM, CHANNEL, fresh_ts())
    key = {"Idempotency-Key": f"slack:{TEAM}:{CHANNEL}:{place.message_ts}", "Prefer": "respond-async"}
    async with shared.client(key=await shared.key("bert")) as bert:
        sent = await bert.post(f"/v1/sessions/{session}/messages", json={"content": "in the way"}, headers=key)

    who = SlackId(TEAM, "U0ANNA001")
    asked = SlackMessage("Ev1", place, place.message_ts, who, "mine", is_direct=False, is_addressed=True)
    inbox = shared.database.open_slack("assistant").inbox

    assert sent.status_code == httpx.codes.ACCEPTED
    assert [await inbox.accept(asked) for _ in range(2)] == [AcceptOutcome.ACCEPTED, AcceptOutcome.DUPLICATE]


async def test_others_find_nothing(shared: ApiStage) -> None:
    await linked(shared, "U0ANNA001", "anna")
    session = await take(shared.database, "hello", channel=CHANNEL, user="U0ANNA001")
    async with shared.client(key=await shared.key("clara")) as client:
        answers = [
            await client.get(f"/v1/sessions/{session}"),
            await client.get(f"/v1/sessions/{session}/messages"),
            await client.post(f"/v1/sessions/{session}/messages", json={"content": "let me in"}),
        ]

    assert [answer.status_code for answer in answers] == [httpx.codes.NOT_FOUND] * 3


async def test_a_direct_conversation_is_its_persons_alone(shared: ApiStage) -> None:
    await linked(shared, "U0ANNA001", "anna")
    session = await take(shared.database, "between us", channel="D0ANNA001", user="U0ANNA001")
    async with shared.client(key=await shared.key("anna")) as anna, shared.client(key=await shared.key("bert")) as bert:
        own = await anna.get(f"/v1/sessions/{session}")
        foreign = await bert.get(f"/v1/sessions/{session}")

    assert (own.status_code, foreign.status_code) == (200, 404)
