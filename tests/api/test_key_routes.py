"""Keys over REST: created by operators for no more than their own key may, listed, and revoked."""

from dataclasses import replace

import httpx
import pytest

from fakes.api_stage import KEYED, ApiStage, set_stage
from fakes.raw_sql import run_sql
from throughline.db.database import Database
from throughline.domain.keys import Scope

ALL = tuple(Scope)


@pytest.fixture
def keyed(database: Database) -> ApiStage:
    return set_stage(database, KEYED)


async def test_a_new_key_is_shown_once_and_serves_its_user(keyed: ApiStage, database_url: str) -> None:
    async with keyed.client(key=await keyed.key("ops", *ALL)) as operator:
        made = await operator.post("/v1/keys", json={"user": "anna", "name": "laptop"})
        listed = await operator.get("/v1/keys")
    created = made.json()
    async with keyed.client(key=created["secret"]) as anna:
        session = await anna.post("/v1/sessions", json={"agent": "assistant"})
        refused = await anna.get("/v1/keys")

    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    assert (created["user"], created["name"], created["scopes"]) == ("anna", "laptop", ["read", "write"])
    assert (session.status_code, refused.status_code) == (201, 403)
    assert created["secret"] not in listed.text
    assert created["secret"] not in str(await run_sql(database_url, "select api_keys::text from api_keys"))
    assert [(key["user"], key["is_own"]) for key in listed.json()["data"]] == [("ops", True), ("anna", False)]
    assert listed.json()["data"][1]["prefix"] == created["prefix"]


async def test_a_key_gives_no_scope_that_it_lacks(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("ops", Scope.READ, Scope.OPERATE)) as operator:
        by_default = await operator.post("/v1/keys", json={})
        wider = await operator.post("/v1/keys", json={"scopes": ["read", "act_as"]})
        same = await operator.post("/v1/keys", json={"scopes": ["read", "operate"]})

    assert (by_default.status_code, "scope `write`" in by_default.json()["detail"]) == (403, True)
    assert (wider.status_code, "scope `act_as`" in wider.json()["detail"]) == (403, True)
    assert (same.status_code, same.json()["user"]) == (201, "ops")


async def test_a_key_without_act_as_makes_none_for_another_user(keyed: ApiStage) -> None:
    key = await keyed.key("ops", Scope.READ, Scope.WRITE, Scope.OPERATE)
    async with keyed.client(key=key) as operator:
        refused = await operator.post("/v1/keys", json={"user": "anna"})

    assert (refused.status_code, refused.json()["type"]) == (403, "/problems/not_allowed")
    assert "scope `act_as`" in refused.json()["detail"]
    assert await keyed.database.users.get("anna") is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"user": ""}, "user"),
        ({"user": "x" * 201}, "user"),
        ({"user": " "}, "user"),
        ({"name": "x" * 201}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["admin"]}, "scopes.0"),
        ({"secret": "tl_mine"}, "secret"),
    ],
)
async def test_a_wrong_value_is_named(keyed: ApiStage, body: dict[str, object], field: str) -> None:
    async with keyed.client(key=await keyed.key("ops", *ALL)) as operator:
        refused = await operator.post("/v1/keys", json=body)

    assert refused.json()["type"] == "/problems/invalid_input"
    assert [error["field"] for error in refused.json()["errors"]] == [field]


async def test_without_keys_the_first_one_is_not_created_over_rest(client: httpx.AsyncClient, stage: ApiStage) -> None:
    refused = await client.post("/v1/keys", json={})

    assert (refused.status_code, refused.json()["type"]) == (403, "/problems/not_allowed")
    assert "throughline keys create" in refused.json()["detail"]
    assert not await stage.database.keys.any_exists()


@pytest.mark.parametrize("named_by", ["id", "prefix"])
async def test_a_revoked_key_is_refused_at_once_and_stays_listed(database: Database, named_by: str) -> None:
    keyed = set_stage(database, replace(KEYED, key_cache_seconds=60.0))
    async with keyed.client(key=await keyed.key("ops", *ALL)) as operator:
        created = (await operator.post("/v1/keys", json={})).json()
        async with keyed.client(key=created["secret"]) as client:
            before = await client.get("/v1/sessions")
            revoked = await operator.delete(f"/v1/keys/{created[named_by]}")
            after = await client.get("/v1/sessions")
        again = await operator.delete(f"/v1/keys/{created[named_by]}")
        listed = (await operator.get("/v1/keys")).json()["data"]

    assert (before.status_code, revoked.status_code, after.status_code, again.status_code) == (200, 200, 401, 404)
    assert (revoked.json()["is_own"], listed[1]["revoked_at"]) == (False, revoked.json()["revoked_at"])


async def test_the_requests_own_key_may_be_revoked_and_the_answer_says_so(keyed: ApiStage) -> None:
    key = await keyed.key("ops", *ALL)
    async with keyed.client(key=key) as operator:
        revoked = await operator.delete(f"/v1/keys/{key.split('_')[1]}")
        after = await operator.get("/v1/keys")

    assert (revoked.status_code, after.status_code) == (200, 401)
    assert revoked.json()["is_own"]
    assert "this request was sent with" in revoked.json()["note"]


async def test_the_secret_of_an_unknown_key_is_not_repeated(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("ops", *ALL)) as operator:
        unknown = await operator.delete("/v1/keys/tl_aaaaaaaa_secret")

    assert unknown.status_code == httpx.codes.NOT_FOUND
    assert "secret" not in unknown.json()["detail"]
