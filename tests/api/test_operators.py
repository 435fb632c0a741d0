"""Routes for operators: who may use them, and what they tell of the whole service."""

import httpx
import pytest

from api.test_isolation import OF_OPERATORS
from fakes.access_tokens import UNKNOWN, Owned
from fakes.api_stage import KEYED, ApiStage, set_stage
from throughline.db.database import Database
from throughline.domain.keys import Scope


@pytest.fixture
def keyed(database: Database) -> ApiStage:
    return set_stage(database, KEYED)


async def test_other_keys_are_refused_with_the_name_of_the_scope(keyed: ApiStage, subtests: pytest.Subtests) -> None:
    key = await keyed.key("bob", Scope.READ, Scope.WRITE, Scope.ACT_AS)
    async with keyed.client(key=key) as client:
        for method, template in sorted(OF_OPERATORS):
            with subtests.test(f"{method} {template}"):
                refused = await client.request(method, Owned(UNKNOWN, UNKNOWN).path(template))

                assert refused.status_code == httpx.codes.FORBIDDEN
                assert refused.json()["type"] == "/problems/not_allowed"
                assert "scope `operate`" in refused.json()["detail"]


async def test_the_status_tells_of_the_turns_of_all_users(keyed: ApiStage) -> None:
    keyed.turns.has_worker = False
    async with keyed.client(key=await keyed.key("ada")) as ada:
        session = (await ada.post("/v1/sessions", json={"agent": "assistant"})).json()["id"]
        queued = {"Prefer": "respond-async"}
        await ada.post(f"/v1/sessions/{session}/messages", json={"content": "hi"}, headers=queued)
    async with keyed.client(key=await keyed.key("bob", Scope.OPERATE)) as operator:
        found = (await operator.get("/v1/status")).json()

    assert found["queued"]["waiting"] + sum(held["runs"] for held in found["held"]) == 1
    assert set(found) == {
        "database",
        "schema",
        "is_stuck",
        "processes",
        "queued",
        "held",
        "jobs",
        "slack",
        "breakers",
    }


async def test_without_keys_the_local_user_reads_the_status(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/status")).status_code == httpx.codes.OK
