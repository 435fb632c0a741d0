"""What a provider said about a failed turn: shown to operators, and to nobody else."""

import math
from datetime import datetime
from typing import Any

import httpx
import pytest

from fakes.api_stage import KEYED, LOCAL, ApiStage, open_session, set_stage
from throughline.db.database import Database
from throughline.domain.keys import Scope
from throughline.domain.run import RunError

SAID = "the flag --enable-this is not set"
ERROR = RunError("model_invalid_request", "The server was started without tools.", SAID)
OPERATOR = (Scope.READ, Scope.WRITE, Scope.OPERATE)


async def send(client: httpx.AsyncClient, *, accept: str = "application/json", prefer: str = "") -> httpx.Response:
    session = await open_session(client)
    headers = {"Accept": accept, "Prefer": prefer}
    return await client.post(f"{session}/messages", json={"content": "hi"}, headers=headers)


async def all_answers(client: httpx.AsyncClient) -> dict[str, Any]:
    """Return the problem of a failed turn, and the run as the routes of runs answer it."""
    problem = (await send(client)).json()
    path = f"/v1/runs/{problem['run_id']}"
    cancelled = (await client.post(f"{path}/cancel")).json()
    return {"problem": problem, "run": (await client.get(path)).json(), "cancelled": cancelled}


@pytest.fixture
def keyed(database: Database) -> ApiStage:
    stage = set_stage(database, KEYED)
    stage.turns.error = ERROR
    return stage


async def test_a_key_with_the_scope_reads_it_in_the_problem_and_in_the_run(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("ada", *OPERATOR)) as client:
        answers = await all_answers(client)

    expected = {"type": ERROR.type, "detail": ERROR.detail, "provider_message": SAID}
    assert answers["problem"]["provider_message"] == SAID
    assert answers["problem"]["detail"] == ERROR.detail
    assert [run["error"] for run in (answers["problem"]["run"], answers["run"], answers["cancelled"])] == [expected] * 3


@pytest.mark.parametrize("scopes", [(Scope.READ, Scope.WRITE), (Scope.READ, Scope.WRITE, Scope.ACT_AS)])
async def test_a_key_without_the_scope_reads_our_words_alone(keyed: ApiStage, scopes: tuple[Scope, ...]) -> None:
    async with keyed.client(key=await keyed.key("ada", *scopes)) as client:
        answers = await all_answers(client)

    assert answers["run"]["error"] == {"type": ERROR.type, "detail": ERROR.detail}
    assert "provider_message" not in str(answers)
    assert SAID not in str(answers)


async def test_a_spent_budget_says_how_long_to_wait(database: Database) -> None:
    stage = set_stage(database, LOCAL)
    stage.turns.error = RunError("daily_budget_spent", "It is spent.")
    async with stage.client() as client:
        refused = await send(client)

    ended = datetime.fromisoformat(refused.json()["run"]["finished_at"])
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) == math.ceil(
        86_400 - (ended - ended.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds()
    )


async def test_the_local_user_is_the_operator(database: Database) -> None:
    stage = set_stage(database, LOCAL)
    stage.turns.error = ERROR
    async with stage.client() as client:
        assert (await all_answers(client))["problem"]["provider_message"] == SAID


async def test_a_back_end_with_the_scope_reads_it_for_its_end_users(keyed: ApiStage) -> None:
    key = await keyed.key("web", *OPERATOR, Scope.ACT_AS)
    async with keyed.client(key=key, user="anna") as client:
        assert (await send(client)).json()["provider_message"] == SAID


async def test_the_events_of_a_run_never_have_it(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("ada", *OPERATOR)) as client:
        streamed = await send(client, accept="text/event-stream")

    assert "run.failed" in streamed.text
    assert ERROR.detail in streamed.text
    assert "provider_message" not in streamed.text
    assert SAID not in streamed.text


async def test_without_words_of_the_provider_the_problem_has_no_member_for_them(keyed: ApiStage) -> None:
    keyed.turns.error = RunError("turn_timeout", "Too slow.")
    async with keyed.client(key=await keyed.key("ada", *OPERATOR)) as client:
        problem = (await send(client)).json()

    assert "provider_message" not in problem
    assert problem["run"]["error"]["provider_message"] == ""


async def test_the_scope_alone_allows_no_request(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("ada", Scope.OPERATE)) as client:
        assert (await client.get("/v1/sessions")).status_code == 403
