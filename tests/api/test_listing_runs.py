"""The runs of a session: the last submitted first, page by page, by status; to their owner alone."""

from uuid import UUID

import httpx
import pytest

from fakes.api_stage import KEYED, LOCAL, ApiStage, open_session, set_stage
from throughline.db.database import Database
from throughline.domain.keys import Scope
from throughline.domain.run import RunError, RunStatus

ASYNC = {"Prefer": "respond-async"}
UNKNOWN = str(UUID(int=7))


@pytest.fixture
def stage(database: Database) -> ApiStage:
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


async def test_a_run_is_listed_as_it_is_read_alone(stage: ApiStage) -> None:
    async with stage.client() as client:
        session = await open_session(client)
        answer = (await client.post(f"{session}/messages", json={"content": "hi"})).json()

        page = (await client.get(f"{session}/runs")).json()
        alone = (await client.get(f"/v1/runs/{answer['run']['id']}")).json()
        history = (await client.get(f"{session}/messages")).json()["data"]

    assert page == {"data": [alone], "next_cursor": None}
    assert [alone["user_message_id"], alone["message_id"]] == [message["id"] for message in history]


@pytest.mark.parametrize("limit", [1, 2, 5, 200])
async def test_the_last_submitted_comes_first_on_pages_of_any_size(stage: ApiStage, limit: int) -> None:
    stage.turns.has_worker = False
    async with stage.client() as client:
        session, other = await open_session(client), await open_session(client)
        runs: list[str] = []
        for number in range(5):
            runs += await sent(client, session, f"message {number}")
            await sent(client, other, "elsewhere")

        assert await listed(client, session, limit=limit) == runs[::-1]


async def test_only_runs_of_the_status_are_listed(stage: ApiStage) -> None:
    stage.turns.has_worker = False
    async with stage.client() as client:
        session = await open_session(client)
        first, second, third = await sent(client, session, "one", "two", "three")
        await client.post(f"/v1/runs/{second}/cancel")

        assert await listed(client, session, status="queued", limit=1) == [third, first]
        assert await listed(client, session, status="cancelled") == [second]
        assert await listed(client, session, status="failed") == []


@pytest.mark.parametrize("cursor", ["x", "", "\u0000", UNKNOWN, "é" * 36, UNKNOWN.upper()[:-1] + "Z"])
async def test_a_cursor_that_no_page_returned_is_refused(stage: ApiStage, cursor: str) -> None:
    async with stage.client() as client:
        session = await open_session(client)
        await client.post(f"{session}/messages", json={"content": "hi"})
        response = await client.get(f"{session}/runs", params={"cursor": cursor})

    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "cursor"


async def test_a_cursor_of_another_session_is_refused(stage: ApiStage) -> None:
    stage.turns.has_worker = False
    async with stage.client() as client:
        session, other = await open_session(client), await open_session(client)
        await sent(client, session, "one", "two")
        (elsewhere,) = await sent(client, other, "three")
        response = await client.get(f"{session}/runs", params={"cursor": elsewhere})

    assert response.status_code == 422


@pytest.mark.parametrize(
    ("name", "value"), [("status", "sleeping"), ("status", ""), ("limit", "0"), ("limit", "201"), ("order", "asc")]
)
async def test_what_cannot_be_asked_is_refused_by_name(stage: ApiStage, name: str, value: str) -> None:
    async with stage.client() as client:
        session = await open_session(client)
        response = await client.get(f"{session}/runs", params={name: value})

    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == name


async def test_an_empty_session_has_an_empty_list_and_others_have_none(database: Database) -> None:
    stage = set_stage(database, KEYED)
    async with stage.client(key=await stage.key("ada")) as ada, stage.client(key=await stage.key("bob")) as bob:
        session = await open_session(ada)
        own, foreign = await ada.get(f"{session}/runs"), await bob.get(f"{session}/runs")
        unknown = await bob.get(f"/v1/sessions/{UNKNOWN}/runs")

    assert (own.status_code, own.json()) == (200, {"data": [], "next_cursor": None})
    assert [foreign.status_code, unknown.status_code] == [404, 404]


async def test_words_of_a_provider_are_listed_for_operators_alone(database: Database) -> None:
    stage = set_stage(database, KEYED)
    stage.turns.error = RunError("model_unavailable", "The model is down.", "upstream said no")
    keys = [await stage.key("ada"), await stage.key("ada", Scope.READ, Scope.OPERATE)]
    async with stage.client(key=keys[0]) as user, stage.client(key=keys[1]) as operator:
        session = await open_session(user)
        await user.post(f"{session}/messages", json={"content": "hi"})
        shown = [(await client.get(f"{session}/runs")).json()["data"][0] for client in (user, operator)]

    assert [run["status"] for run in shown] == [RunStatus.FAILED] * 2
    assert [run["error"].get("provider_message") for run in shown] == [None, "upstream said no"]
