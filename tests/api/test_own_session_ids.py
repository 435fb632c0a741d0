"""A caller's own ids for sessions over HTTP: get or create, lists, changes, and copies of a session."""

import asyncio
import json
from urllib.parse import quote
from uuid import UUID

import httpx
import pytest

from fakes.api_stage import KEYED, LOCAL, ApiStage, open_session, set_stage
from throughline.db.database import Database
from throughline.domain.keys import Scope
from throughline.domain.run import RunError, RunStatus

KEY = {"Idempotency-Key": "k-1"}
ORDER = {"agent": "assistant", "external_id": "order 7"}
JSON_LINES = {"Content-Type": "application/x-ndjson"}


async def opened(client: httpx.AsyncClient, **body: object) -> str:
    response = await client.post("/v1/sessions", json={"agent": "assistant", **body})
    assert response.status_code in {200, 201}, response.text
    return f"/v1/sessions/{response.json()['id']}"


async def ids(client: httpx.AsyncClient, **filters: str) -> list[str]:
    response = await client.get("/v1/sessions", params=filters)
    assert response.status_code == 200, response.text
    return [f"/v1/sessions/{session['id']}" for session in response.json()["data"]]


async def test_fifty_calls_at_once_over_sockets_create_one_session(stage: ApiStage) -> None:
    async with stage.served() as client:
        calls = (client.post("/v1/sessions", json=ORDER) for _ in range(50))
        responses = await asyncio.gather(*calls)
        listed = await ids(client, include_archived="true")

    statuses = [response.status_code for response in responses]
    assert (statuses.count(201), statuses.count(200)) == (1, 49)
    assert len({response.json()["id"] for response in responses}) == len(listed) == 1
    assert {response.headers["location"] for response in responses} == set(listed)


async def test_fifty_repeated_requests_with_one_key_and_id_create_one_session(stage: ApiStage) -> None:
    async with stage.served() as client:
        calls = (client.post("/v1/sessions", json=ORDER, headers=KEY) for _ in range(50))
        responses = await asyncio.gather(*calls)

    assert {response.status_code for response in responses} == {201}
    assert len({response.text for response in responses}) == 1
    assert sum("idempotency-replayed" not in response.headers for response in responses) == 1


async def test_a_session_that_exists_is_returned_unchanged(client: httpx.AsyncClient) -> None:
    first = await client.post("/v1/sessions", json={**ORDER, "title": "First", "metadata": {"a": 1}})
    path = first.headers["location"]
    archived = (await client.patch(path, json={"archived": True})).json()

    again = await client.post("/v1/sessions", json={**ORDER, "agent": "researcher", "title": "Second"})

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == archived == (await client.get(path)).json()
    assert (archived["external_id"], archived["agent"], archived["title"]) == ("order 7", "assistant", "First")


async def test_another_key_finds_the_session_and_a_reused_one_is_refused(client: httpx.AsyncClient) -> None:
    first = await client.post("/v1/sessions", json=ORDER, headers=KEY)

    other = await client.post("/v1/sessions", json={**ORDER, "title": "t"}, headers={"Idempotency-Key": "k-2"})
    reused = await client.post("/v1/sessions", json={**ORDER, "title": "t"}, headers=KEY)

    assert (other.status_code, other.json()) == (200, first.json())
    assert (reused.status_code, reused.json()["type"]) == (409, "/problems/idempotency_key_reused")


async def test_users_do_not_meet_each_others_external_ids(database: Database) -> None:
    stage = set_stage(database, KEYED)
    keys = [await stage.key("anna"), await stage.key("mallory")]
    async with stage.client(key=keys[0]) as anna, stage.client(key=keys[1]) as mallory:
        own, other = await opened(anna, external_id="order 7"), await opened(mallory, external_id="order 7")
        spare = await opened(mallory)
        refused = await mallory.patch(spare, json={"external_id": "order 7"})

        assert await ids(anna, external_id="order 7") == [own]
        assert await ids(mallory, external_id="order 7") == [other]
        assert own.removeprefix("/v1/sessions/") not in refused.text


@pytest.mark.parametrize(
    ("given", "reason"),
    [("", "characters or more"), ("x" * 256, "255 characters or fewer"), (" \u200b", "is blank"), (7, "text")],
)
async def test_an_unusable_external_id_is_refused_everywhere(
    client: httpx.AsyncClient, given: object, reason: str
) -> None:
    path = await opened(client)
    body = {"agent": "assistant", "external_id": given}

    for response in (
        await client.post("/v1/sessions", json=body),
        await client.patch(path, json={"external_id": given}),
        await client.post("/v1/sessions/import", json={**body, "messages": [{"role": "user", "content": "hi"}]}),
    ):
        assert response.status_code == 422
        assert response.json()["errors"][0]["field"] == "external_id"
        assert reason in response.json()["errors"][0]["detail"]


async def test_an_external_id_is_cleaned_and_found_by_the_same_text(client: httpx.AsyncClient) -> None:
    sent = json.dumps({"agent": "assistant", "external_id": "a\x00é\ud800"})

    made, again = [await client.post("/v1/sessions", content=sent) for _ in range(2)]

    path = made.headers["location"]
    assert made.json()["external_id"] == "a\ufffdé\ufffd"
    assert (again.status_code, again.json()) == (200, made.json())
    assert await ids(client, external_id="a\x00é\ufffd") == [path]
    assert await ids(client, external_id="A\x00é\ufffd") == []


async def test_an_external_id_is_changed_removed_and_refused_if_taken(client: httpx.AsyncClient) -> None:
    holder, path = await opened(client, external_id="order 7"), await opened(client)

    taken = await client.patch(path, json={"external_id": "order 7"})
    kept = await client.patch(path, json={"title": "t"})
    freed = await client.patch(holder, json={"external_id": None})
    changed = await client.patch(path, json={"external_id": "order 7"})

    assert (taken.status_code, taken.json()["type"]) == (409, "/problems/external_id_taken")
    assert "'order 7'" in taken.json()["detail"]
    assert [reply.json()["external_id"] for reply in (kept, freed, changed)] == [None, None, "order 7"]


async def test_an_import_takes_the_external_id_unless_another_is_given(client: httpx.AsyncClient) -> None:
    message = {"role": "user", "content": "hi"}
    conversation = {"agent": "assistant", "external_id": "order 7", "messages": [message]}
    first = await client.post("/v1/sessions/import", json=conversation)
    export = (await client.get(f"{first.headers['location']}/export")).content

    async def imported(query: str) -> httpx.Response:
        return await client.post(f"/v1/sessions/import{query}", content=export, headers=JSON_LINES)

    taken, renamed, unnamed = await imported(""), await imported("?external_id=b"), await imported("?external_id=")
    await client.delete(first.headers["location"])
    moved = await imported("")

    assert (taken.status_code, taken.json()["type"]) == (409, "/problems/external_id_taken")
    assert (await imported("?external_id=%20")).status_code == 422
    replies = (first, renamed, unnamed, moved)
    assert [reply.status_code for reply in replies] == [201] * 4
    assert [reply.json()["external_id"] for reply in replies] == ["order 7", "b", None, "order 7"]


async def test_sessions_are_listed_by_metadata_with_other_filters_and_a_cursor(client: httpx.AsyncClient) -> None:
    made = [await opened(client, title=f"t{n % 2}", metadata={"project": "x", "n": n}) for n in range(6)]
    await opened(client, title="t1", metadata={"project": "y"})
    wanted = '{"project": "x"}'

    first = (await client.get("/v1/sessions", params={"metadata": wanted, "q": "t1", "limit": 2})).json()
    rest = await ids(client, metadata=wanted, q="t1", cursor=first["next_cursor"])

    assert [session["metadata"]["n"] for session in first["data"]] == [5, 3]
    assert rest == [made[1]]
    assert await ids(client, metadata='{"n": 2}') == [made[2]]
    assert len(await ids(client, metadata="{}")) == 7


async def test_sessions_are_listed_by_the_first_characters_of_their_ids(client: httpx.AsyncClient) -> None:
    path = await opened(client)
    session_id = path.rpartition("/")[2]
    last = session_id[-1]
    other = session_id[:-1] + ("0" if last != "0" else "1")

    for prefix in (session_id[:4], session_id[:14].upper(), session_id.replace("-", "")[:20], session_id):
        assert await ids(client, id_prefix=prefix) == [path]
    for prefix in (other, "f" * 4):
        assert await ids(client, id_prefix=prefix) == []
    for prefix in ("", session_id[:3], "xyzt", "-" * 5, "a" * 33, f"{session_id}0"):
        assert (await client.get("/v1/sessions", params={"id_prefix": prefix})).status_code == 422


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "empty"),
        ("{", "not valid JSON"),
        ("[1]", "Must be a JSON object"),
        ("null", "Must be a JSON object"),
        ('{"a": NaN}', "not a JSON number"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "9" * 5_000 + "}", "too many digits"),
        ('{"a": ' * 33 + "1" + "}" * 33, "nested deeper than 32"),
        ('{"a": ' * 999 + "1" + "}" * 999, "nested more than 64"),
        (json.dumps({str(n): n for n in range(257)}), "257 keys"),
        (json.dumps({"a": "x" * 16_384}), "bytes; at most 16384"),
        ('{"\\u0000": 1}', "NUL"),
    ],
)
async def test_an_unusable_filter_of_metadata_is_refused(client: httpx.AsyncClient, given: str, reason: str) -> None:
    response = await client.get(f"/v1/sessions?metadata={quote(given)}")

    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "metadata"
    assert reason in response.json()["errors"][0]["detail"]
    assert "body" not in response.text


async def test_nul_in_a_filter_of_metadata_finds_what_was_stored_of_it(client: httpx.AsyncClient) -> None:
    path = await opened(client, metadata={"a": "\x00"})

    assert await ids(client, metadata='{"a": "\\u0000"}') == [path]


ASYNC = {"Prefer": "respond-async"}
UNKNOWN = str(UUID(int=7))


@pytest.fixture
def stage_listing(database: Database) -> ApiStage:
    return set_stage(database, LOCAL)


async def sent(client: httpx.AsyncClient, session: str, *texts: str) -> list[str]:
    """Send the messages one after the other and return the ids of their runs."""
    answers = [await client.post(f"{session}/messages", json={"content": text}, headers=ASYNC) for text in texts]
    return [answer.json()["run"]["id"] for answer in answers]


async def listed(client: httpx.AsyncClient, session: str, **asked: object) -> list[str]:
    """Return the ids of all runs, page by page."""
    found: list[str] = []
    params = {name: str(value) for name, value in asked.items()}
    while True:
        page = (await client.get(f"{session}/runs", params=params)).json()
        found += [run["id"] for run in page["data"]]
        if page["next_cursor"] is None:
            return found
        params["cursor"] = page["next_cursor"]


async def test_a_run_is_listed_as_it_is_read_alone(stage_listing: ApiStage) -> None:
    async with stage_listing.client() as client:
        session = await open_session(client)
        answer = (await client.post(f"{session}/messages", json={"content": "hi"})).json()

        page = (await client.get(f"{session}/runs")).json()
        alone = (await client.get(f"/v1/runs/{answer['run']['id']}")).json()
        history = (await client.get(f"{session}/messages")).json()["data"]

    assert page == {"data": [alone], "next_cursor": None}
    assert [alone["user_message_id"], alone["message_id"]] == [message["id"] for message in history]


@pytest.mark.parametrize("limit", [1, 2, 5, 200])
async def test_the_last_submitted_comes_first_on_pages_of_any_size(stage_listing: ApiStage, limit: int) -> None:
    stage_listing.turns.has_worker = False
    async with stage_listing.client() as client:
        session, other = await open_session(client), await open_session(client)
        runs: list[str] = []
        for number in range(5):
            runs += await sent(client, session, f"message {number}")
            await sent(client, other, "elsewhere")

        assert await listed(client, session, limit=limit) == runs[::-1]


async def test_only_runs_of_the_status_are_listed(stage_listing: ApiStage) -> None:
    stage_listing.turns.has_worker = False
    async with stage_listing.client() as client:
        session = await open_session(client)
        first, second, third = await sent(client, session, "one", "two", "three")
        await client.post(f"/v1/runs/{second}/cancel")

        assert await listed(client, session, status="queued", limit=1) == [third, first]
        assert await listed(client, session, status="cancelled") == [second]
        assert await listed(client, session, status="failed") == []


@pytest.mark.parametrize("cursor", ["x", "", "\u0000", UNKNOWN, "é" * 36, UNKNOWN.upper()[:-1] + "Z"])
async def test_a_cursor_that_no_page_returned_is_refused(stage_listing: ApiStage, cursor: str) -> None:
    async with stage_listing.client() as client:
        session = await open_session(client)
        await client.post(f"{session}/messages", json={"content": "hi"})
        response = await client.get(f"{session}/runs", params={"cursor": cursor})

    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "cursor"


async def test_a_cursor_of_another_session_is_refused(stage_listing: ApiStage) -> None:
    stage_listing.turns.has_worker = False
    async with stage_listing.client() as client:
        session, other = await open_session(client), await open_session(client)
        await sent(client, session, "one", "two")
        (elsewhere,) = await sent(client, other, "three")
        response = await client.get(f"{session}/runs", params={"cursor": elsewhere})

    assert response.status_code == 422


@pytest.mark.parametrize(
    ("name", "value"), [("status", "sleeping"), ("status", ""), ("limit", "0"), ("limit", "201"), ("order", "asc")]
)
async def test_what_cannot_be_asked_is_refused_by_name(stage_listing: ApiStage, name: str, value: str) -> None:
    async with stage_listing.client() as client:
        session = await open_session(client)
        response = await client.get(f"{session}/runs", params={name: value})

    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == name


async def test_an_empty_session_has_an_empty_list_and_others_have_none(database: Database) -> None:
    stage_listing = set_stage(database, KEYED)
    async with (
        stage_listing.client(key=await stage_listing.key("ada")) as ada,
        stage_listing.client(key=await stage_listing.key("bob")) as bob,
    ):
        session = await open_session(ada)
        own, foreign = await ada.get(f"{session}/runs"), await bob.get(f"{session}/runs")
        unknown = await bob.get(f"/v1/sessions/{UNKNOWN}/runs")

    assert (own.status_code, own.json()) == (200, {"data": [], "next_cursor": None})
    assert [foreign.status_code, unknown.status_code] == [404, 404]


async def test_words_of_a_provider_are_listed_for_operators_alone(database: Database) -> None:
    stage_listing = set_stage(database, KEYED)
    stage_listing.turns.error = RunError("model_unavailable", "The model is down.", "upstream said no")
    keys = [await stage_listing.key("ada"), await stage_listing.key("ada", Scope.READ, Scope.OPERATE)]
    async with stage_listing.client(key=keys[0]) as user, stage_listing.client(key=keys[1]) as operator:
        session = await open_session(user)
        await user.post(f"{session}/messages", json={"content": "hi"})
        shown = [(await client.get(f"{session}/runs")).json()["data"][0] for client in (user, operator)]

    assert [run["status"] for run in shown] == [RunStatus.FAILED] * 2
    assert [run["error"].get("provider_message") for run in shown] == [None, "upstream said no"]
