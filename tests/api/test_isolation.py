"""Nobody reaches another user's data: one row per route, and a route without a row fails."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from fakes.access_tokens import UNKNOWN, Owned, owned_by
from fakes.api_stage import KEYED, ApiStage, set_stage
from fakes.raw_sql import run_sql
from fakes.slack_delivery import take
from fakes.slack_double import TEAM
from fakes.slack_double.payloads import fresh_ts
from fakes.waiting import ManualClock
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import ThroughlineError
from throughline.http.call import ASK_AGAIN_SECONDS, SharedSessions
from throughline.slack.store.database import slack_database
from throughline.slack.store.inbox import AcceptOutcome
from throughline.slack.store.people import SlackId
from throughline.slack.store.slack_events import SlackLocation, SlackMessage

OPEN_TO_ALL = {
    ("GET", "/problems/{name}"),
    ("GET", "/"),
    ("GET", "/health/live"),
    ("GET", "/health/ready"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/openapi-openai.json"),
    ("GET", "/docs"),
    ("GET", "/docs/start.js"),
    ("GET", "/docs/swagger-ui-bundle.js"),
    ("GET", "/docs/swagger-ui.css"),
}
LISTS = {
    ("GET", "/v1/sessions"),
    ("GET", "/v1/search"),
    ("GET", "/v1/agents"),
    ("POST", "/v1/sessions"),
    ("POST", "/v1/sessions/import"),
    ("GET", "/v1/memories"),
    ("GET", "/v1/usage"),
    ("POST", "/v1/tokens"),
    ("POST", "/v1/memories"),
    ("POST", "/v1/memories/search"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/responses/compact"),
    ("POST", "/v1/responses/input_tokens"),
    ("POST", "/v1/conversations"),
}
OF_ONE_USER = {("DELETE", "/v1/users/{name:path}")}
"""Routes that name a user; tests/db/test_keys_and_users.py asks them for another one."""

OF_OPERATORS = {
    ("GET", "/v1/status"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/keys"),
    ("POST", "/v1/keys"),
    ("DELETE", "/v1/keys/{key}"),
}
"""Routes over the data of all users; test_operators.py asks them without the scope."""

BY_ID: dict[tuple[str, str], dict[str, object] | None] = {
    ("GET", "/v1/sessions/{session_id}"): None,
    ("PATCH", "/v1/sessions/{session_id}"): {"title": "taken"},
    ("DELETE", "/v1/sessions/{session_id}"): None,
    ("POST", "/v1/sessions/{session_id}/branch"): {"at": 1},
    ("GET", "/v1/sessions/{session_id}/messages"): None,
    ("POST", "/v1/sessions/{session_id}/messages"): {"content": "hi"},
    ("GET", "/v1/sessions/{session_id}/runs"): None,
    ("GET", "/v1/sessions/{session_id}/search?q=secret"): None,
    ("GET", "/v1/sessions/{session_id}/export"): None,
    ("GET", "/v1/sessions/{session_id}/context"): None,
    ("POST", "/v1/sessions/{session_id}/context/preview"): {"content": "hi"},
    ("PUT", "/v1/sessions/{session_id}/messages/{message_id}/pin"): None,
    ("DELETE", "/v1/sessions/{session_id}/messages/{message_id}/pin"): None,
    ("POST", "/v1/sessions/{session_id}/messages/{message_id}/redact"): None,
    ("POST", "/v1/sessions/{session_id}/summarize"): {},
    ("POST", "/v1/sessions/{session_id}/summarize/estimate"): {},
    ("GET", "/v1/sessions/{session_id}/summaries"): None,
    ("GET", "/v1/sessions/{session_id}/summaries/{summary_id}"): None,
    ("POST", "/v1/sessions/{session_id}/summaries/{summary_id}/restore"): None,
    ("GET", "/v1/memories/{memory_id}"): None,
    ("PATCH", "/v1/memories/{memory_id}"): {"text": "taken"},
    ("DELETE", "/v1/memories/{memory_id}"): None,
    ("GET", "/v1/runs/{run_id}"): None,
    ("GET", "/v1/runs/{run_id}/events"): None,
    ("POST", "/v1/runs/{run_id}/cancel"): None,
    ("POST", "/v1/runs/{run_id}/resume"): {"calls": [{"call_id": "call_1", "output": "sun"}]},
    ("GET", "/v1/responses/{response_id}"): None,
    ("DELETE", "/v1/responses/{response_id}"): None,
    ("POST", "/v1/responses/{response_id}/cancel"): None,
    ("GET", "/v1/responses/{response_id}/input_items"): None,
    ("GET", "/v1/conversations/{conversation}"): None,
    ("POST", "/v1/conversations/{conversation}"): {"metadata": {"taken": "yes"}},
    ("DELETE", "/v1/conversations/{conversation}"): None,
    ("GET", "/v1/conversations/{conversation}/items"): None,
    ("POST", "/v1/conversations/{conversation}/items"): {"items": [{"role": "user", "content": "hi"}]},
    ("GET", "/v1/conversations/{conversation}/items/{item}"): None,
    ("DELETE", "/v1/conversations/{conversation}/items/{item}"): None,
}


def routes_of(stage: ApiStage) -> Iterator[tuple[str, str]]:
    for route in iter_route_contexts(stage.app.routes):
        for method in (route.methods or set()) - {"HEAD"}:
            yield method, route.path or ""


async def everything_of(client: httpx.AsyncClient, owned: Owned) -> list[object]:
    paths = (
        "/v1/sessions/{session_id}",
        "/v1/sessions/{session_id}/messages",
        "/v1/sessions/{session_id}/runs",
        "/v1/runs/{run_id}",
        "/v1/memories/{memory_id}",
    )
    return [(await client.get(owned.path(path))).json() for path in paths]


def without_ids(response: httpx.Response, named: Owned) -> str:
    text = response.text
    for name in (named.session_id, named.run_id, named.message_id, named.memory_id):
        text = text.replace(name, "<id>").replace(UUID(name).hex, "<hex>")
    return text


async def test_a_pin_cannot_be_set_through_another_session(database: Database) -> None:
    """The message is the caller's own and so is the session, but one is not in the other."""
    stage = set_stage(database, KEYED)
    async with stage.client(key=await stage.key("ada")) as ada:
        first, second = await owned_by(ada), await owned_by(ada)
        crossed = Owned(first.session_id, first.run_id, second.message_id)

        answers = [
            await ada.request(method, crossed.path("/v1/sessions/{session_id}/messages/{message_id}/pin"))
            for method in ("PUT", "DELETE")
        ]

    assert [answer.status_code for answer in answers] == [404, 404]


def test_every_route_has_a_row(database: Database) -> None:
    assert set(routes_of(set_stage(database))) == OPEN_TO_ALL | LISTS | OF_ONE_USER | OF_OPERATORS | {
        (method, path.partition("?")[0]) for method, path in BY_ID
    }


async def test_another_users_thing_is_answered_like_an_unknown_one(
    database: Database, subtests: pytest.Subtests
) -> None:
    stage, nobodys = set_stage(database, KEYED), Owned(UNKNOWN, UNKNOWN)
    async with stage.client(key=await stage.key("ada")) as ada, stage.client(key=await stage.key("bob")) as bob:
        adas = await owned_by(ada)
        before = await everything_of(ada, adas)
        for (method, template), body in BY_ID.items():
            with subtests.test(f"{method} {template}"):
                foreign = await bob.request(method, adas.path(template), json=body)
                unknown = await bob.request(method, nobodys.path(template), json=body)

                assert foreign.status_code == 404
                assert without_ids(foreign, adas) == without_ids(unknown, nobodys)
                assert await everything_of(ada, adas) == before


async def test_every_route_wants_a_key(database: Database, subtests: pytest.Subtests) -> None:
    async with set_stage(database, KEYED).client() as client:
        for method, template in [*BY_ID, *sorted(LISTS | OF_OPERATORS)]:
            with subtests.test(f"{method} {template}"):
                response = await client.request(method, Owned(UNKNOWN, UNKNOWN).path(template))
                assert response.status_code == 401


async def test_a_list_shows_only_the_callers_own(database: Database) -> None:
    stage = set_stage(database, KEYED)
    async with stage.client(key=await stage.key("ada")) as ada, stage.client(key=await stage.key("bob")) as bob:
        await owned_by(ada)

        seen = await bob.get("/v1/sessions")

    assert seen.json()["data"] == []


async def test_an_idempotency_key_of_another_user_is_free(database: Database) -> None:
    stage, headers = set_stage(database, KEYED), {"Idempotency-Key": "first"}
    async with stage.client(key=await stage.key("ada")) as ada, stage.client(key=await stage.key("bob")) as bob:
        adas = await ada.post("/v1/sessions", json={"agent": "assistant", "title": "ada"}, headers=headers)

        bobs = await bob.post("/v1/sessions", json={"agent": "assistant", "title": "bob"}, headers=headers)

    assert (adas.status_code, bobs.status_code) == (201, 201)
    assert adas.json()["id"] != bobs.json()["id"]


CHANNEL = "C0GENERAL"


async def test_the_first_participant_is_seen_some_seconds_later(database: Database) -> None:
    clock = ManualClock()
    shared = SharedSessions(database.participants, clock)
    anna = await database.users.get_or_create(f"slack:{TEAM}:U0ANNA001")
    assert await shared.owner_for(anna, session_id=SessionId(uuid4())) is None
    session = await take(database, "hello", channel=CHANNEL, user="U0ANNA001")

    at_once = await shared.owner_for(anna, session_id=session)
    clock.advance(ASK_AGAIN_SECONDS)
    later = await shared.owner_for(anna, session_id=session)

    assert at_once is None
    assert later == await database.users.get(f"slack:{TEAM}:{CHANNEL}")


async def test_without_participants_the_database_is_asked_once_in_some_seconds(
    database: Database, database_url: str
) -> None:
    clock = ManualClock()
    shared = SharedSessions(database.participants, clock)
    anna = await database.users.get_or_create("anna")
    await shared.owner_for(anna, session_id=SessionId(uuid4()))
    await run_sql(database_url, "alter table slack_participants rename to away")

    for _request in range(3):
        assert await shared.owner_for(anna, session_id=SessionId(uuid4())) is None
    clock.advance(ASK_AGAIN_SECONDS)
    with pytest.raises(ThroughlineError, match="refused a statement"):
        await shared.owner_for(anna, session_id=SessionId(uuid4()))


@pytest.fixture
def shared(database: Database) -> ApiStage:
    return set_stage(database, KEYED)


async def linked(stage: ApiStage, slack_user: str, name: str) -> UserId:
    """Make somebody in Slack the user of this name."""
    links = slack_database(stage.database, "assistant").links
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
    inbox = slack_database(shared.database, "assistant").inbox

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
