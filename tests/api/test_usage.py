"""`GET /v1/usage`: the caller's calls, or those of all users for operators, in groups."""

from decimal import Decimal

import httpx
import pytest

from fakes.api_stage import KEYED, ApiStage, set_stage
from throughline.db.database import Database
from throughline.domain.keys import Scope
from throughline.domain.prompt import Usage
from throughline.domain.usage_report import CallPurpose, ModelCall, Payer

PRICED = ModelCall("openai:gpt-4o", CallPurpose.ANSWER, Usage(1000, 100, 400, cost_usd=Decimal("0.0030")))
UNPRICED = ModelCall("local", CallPurpose.SUMMARY, Usage(10, 5))


@pytest.fixture
async def keyed(database: Database) -> ApiStage:
    for name in ("ada", "bob"):
        owner_id = await database.users.get_or_create(name)
        await database.usage.store_calls(Payer(owner_id, agent="helper"), [PRICED, UNPRICED])
    return set_stage(database, KEYED)


async def test_the_caller_reads_their_own_usage_in_the_groups_asked_for(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("ada", Scope.READ)) as client:
        by_model = (await client.get("/v1/usage", params={"group_by": "model, purpose"})).json()
        by_user = (await client.get("/v1/usage", params={"group_by": "user"})).json()
        in_all = (await client.get("/v1/usage", params={"group_by": "none"})).json()
        by_day = (await client.get("/v1/usage")).json()

    assert by_model["data"][0] == {
        "group": {"model": "openai:gpt-4o", "purpose": "answer"},
        "calls": 1,
        "unpriced_calls": 0,
        "input_tokens": 1000,
        "output_tokens": 100,
        "cached_tokens": 400,
        "cache_write_tokens": None,
        "reasoning_tokens": None,
        "cost_usd": 0.003,
    }
    assert by_model["data"][1]["cost_usd"] is None
    assert [(group["group"], group["calls"]) for group in by_user["data"]] == [({"user": "ada"}, 2)]
    assert [(group["group"], group["unpriced_calls"]) for group in in_all["data"]] == [({}, 1)]
    assert list(by_day["data"][0]["group"]) == ["day"]
    assert by_day["since"] < by_day["until"]


async def test_only_operators_read_the_usage_of_all_users(keyed: ApiStage) -> None:
    query = {"group_by": "user", "all_users": "true"}
    async with keyed.client(key=await keyed.key("ada", Scope.READ, Scope.OPERATE)) as operator:
        found = (await operator.get("/v1/usage", params=query)).json()
    async with keyed.client(key=await keyed.key("bob", Scope.READ, Scope.WRITE, Scope.ACT_AS)) as client:
        refused = await client.get("/v1/usage", params=query)
        other = await client.get("/v1/usage", params={"group_by": "user"}, headers={"On-Behalf-Of": "ada"})

    assert [group["group"]["user"] for group in found["data"]] == ["ada", "bob"]
    assert (refused.status_code, "scope `operate`" in refused.json()["detail"]) == (403, True)
    assert [group["group"]["user"] for group in other.json()["data"]] == ["ada"]


async def test_days_are_counted_back_from_the_day_before_a_midnight(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("ada", Scope.READ)) as client:
        one = (await client.get("/v1/usage?days=1&until=2026-03-02T00:00:00Z")).json()
        two = (await client.get("/v1/usage?days=2&until=2026-03-02T10:00:00Z")).json()

    assert one["since"] == two["since"] == "2026-03-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("group_by=month", "Must be none, or some of day, user, agent, model, purpose, each once"),
        ("group_by=day,day", "each once"),
        ("since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "Must be before `until`, 2026-01-01T00:00:00+00:00."),
        ("until=0001-01-01T00:00:00Z", "Must be before `until`"),
        ("group_by=", "Must be none"),
        ("days=0", "Must be 1 or more"),
        ("since=yesterday", "Must be a time with its offset"),
        ("all_users=perhaps", "Must be true or false"),
        ("user=bob", "This field does not exist"),
    ],
)
async def test_a_report_that_cannot_be_is_refused(keyed: ApiStage, query: str, said: str) -> None:
    async with keyed.client(key=await keyed.key("ada", Scope.READ, Scope.OPERATE)) as client:
        refused: httpx.Response = await client.get(f"/v1/usage?{query}")

    assert refused.status_code == 422
    assert said in refused.text
