"""A back end that acts for its users: named exactly once, and recorded as the actor."""

from collections.abc import AsyncIterator

import httpx
import pytest

from fakes.api_stage import KEYED, ApiStage, open_session, set_stage
from throughline.db.database import Database
from throughline.domain.keys import Scope

ON_BEHALF_OF = "On-Behalf-Of"


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database, KEYED)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.client(key=await stage.key("backend", *Scope)) as client:
        yield client
    await stage.turns.settle()


async def test_an_empty_blank_or_repeated_user_is_refused(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for names in ([""], ["  "], ["ada", "bob"], ["ada", "ada"], ["", "ada"]):
        with subtests.test(str(names)):
            response = await client.get("/v1/sessions", headers=[(ON_BEHALF_OF, name) for name in names])

            assert response.status_code == 422
            assert [error["field"] for error in response.json()["errors"]] == [ON_BEHALF_OF]


async def test_the_key_that_acts_for_a_user_is_recorded_on_the_run(client: httpx.AsyncClient) -> None:
    client.headers[ON_BEHALF_OF] = "ada"
    session = await open_session(client)

    answered = (await client.post(f"{session}/messages", json={"content": "hi"})).json()

    run = (await client.get(f"/v1/runs/{answered['run']['id']}")).json()
    assert (run["author"], run["actor"]) == ("ada", "key of backend")
    assert answered["run"] == run


async def test_a_user_who_speaks_for_herself_has_no_actor(client: httpx.AsyncClient) -> None:
    session = await open_session(client)

    answered = (await client.post(f"{session}/messages", json={"content": "hi"})).json()

    assert (answered["run"]["author"], answered["run"]["actor"]) == ("backend", None)


async def test_without_a_key_it_is_said_which_one_is_needed_and_how_to_make_it(database: Database) -> None:
    async with set_stage(database).client(user="ann") as client:
        refused = await client.get("/v1/sessions")

    assert refused.status_code == 403
    assert "needs a key with the scope `act_as`, and no key was sent" in refused.json()["detail"]
    assert "throughline keys create --user NAME --scope read --scope write --scope act_as" in refused.json()["detail"]
