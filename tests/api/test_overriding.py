"""Overrides of a message over REST: what is stored, what is refused with its field, and what a failed format shows."""

import json
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import httpx
import pytest

from fakes.api_stage import KEYED, LOCAL, ApiStage, open_session, set_stage
from fakes.raw_sql import run_sql
from throughline.agents.definition import AgentDefinition, OtherModel
from throughline.agents.registry import AgentRegistry
from throughline.db.database import Database
from throughline.domain.keys import Scope
from throughline.domain.prompt import OverrideField
from throughline.domain.run import RunError
from throughline.execution.json_schema import MAX_SCHEMA_BYTES

OPEN = AgentDefinition(
    name="assistant",
    model="openai:gpt-4o",
    base_url="http://127.0.0.1:1/v1",
    overrides=frozenset(OverrideField),
    override_models=(OtherModel("offline"), OtherModel("openai:big", "http://127.0.0.1:1/v1")),
)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
ALL = {"model": "openai:big", "temperature": 1, "instructions": "Be brief.", "response_format": FORMAT}


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database, LOCAL, dependencies={"agents": AgentRegistry([OPEN])})


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.client() as client:
        yield client
    await stage.turns.settle()


async def send(client: httpx.AsyncClient, overrides: object, **headers: str) -> httpx.Response:
    session = await open_session(client)
    return await client.post(f"{session}/messages", json={"content": "hi", "overrides": overrides}, headers=headers)


async def stored_inputs(database_url: str) -> list[object]:
    return [json.loads(str(row[0])) for row in await run_sql(database_url, "select input::text from runs")]


async def test_overrides_are_stored_with_the_run(client: httpx.AsyncClient, database_url: str) -> None:
    response = await send(client, ALL)

    assert response.status_code == 200, response.text
    wanted = {"schema": SCHEMA, "name": "answer", "description": "", "strict": None}
    overrides = {"model": "openai:big", "temperature": 1.0, "instructions": "Be brief.", "response_format": wanted}
    assert await stored_inputs(database_url) == [{"content": "hi", "metadata": {}, "overrides": overrides}]


@pytest.mark.parametrize("overrides", [{}, None, {"model": None}])
async def test_empty_overrides_are_none(client: httpx.AsyncClient, database_url: str, overrides: object) -> None:
    assert (await send(client, overrides)).status_code == 200

    assert await stored_inputs(database_url) == [{"content": "hi", "metadata": {}}]


@pytest.mark.parametrize(
    ("overrides", "field", "told"),
    [
        ("model", "overrides", "Must be a JSON object."),
        ({"tools": []}, "overrides.tools", "This field does not exist. Remove it."),
        ({"model": 5}, "overrides.model", "Must be text."),
        (
            {"model": "openai:none"},
            "overrides.model",
            "has no model 'openai:none' for requests; it has: offline, openai:",
        ),
        ({"temperature": 2.5}, "overrides.temperature", "Must be 2.0 or less."),
        ({"temperature": "1"}, "overrides.temperature", "Must be a valid number."),
        ({"temperature": True}, "overrides.temperature", "Must be a valid number."),
        ({"instructions": " \n"}, "overrides.instructions", "is blank; write instructions, or leave it out."),
        ({"instructions": "a" * 4_001}, "overrides.instructions", "Must have 4000 characters or fewer."),
        (
            {"response_format": {**FORMAT, "type": "json_object"}},
            "overrides.response_format.type",
            "Must be 'json_schema'.",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "overrides.response_format.json_schema",
            "This field is required.",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "name": "a b"}}},
            "overrides.response_format.json_schema.name",
            "Has the wrong form; see /openapi.json.",
        ),
        (
            {"model": "offline", "response_format": FORMAT},
            "overrides.response_format",
            "The model 'offline' cannot answer in a response format. Leave it out, or use another model.",
        ),
    ],
)
async def test_what_is_wrong_is_refused_and_nothing_is_stored(
    client: httpx.AsyncClient, database_url: str, overrides: object, field: str, told: str
) -> None:
    response = await send(client, overrides)

    assert_refused(response, field, told)
    assert await stored_inputs(database_url) == []


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "text"}, 'The JSON schema cannot be used: $.type: "text" is not '),
        (
            {"$ref": "https://example.org"},
            "retrieving it failed: Retrieval is disabled, cannot fetch https://example.org; a $ref names",
        ),
        ({"description": "a" * MAX_SCHEMA_BYTES}, f"at most {MAX_SCHEMA_BYTES} are allowed."),
    ],
)
async def test_a_schema_that_cannot_be_used_is_refused(
    client: httpx.AsyncClient, database_url: str, schema: object, told: str
) -> None:
    response = await send(client, {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})

    assert_refused(response, "overrides.response_format.json_schema.schema", told)
    assert await stored_inputs(database_url) == []


@pytest.mark.parametrize("name", list(OverrideField))
async def test_what_the_agent_does_not_allow_is_refused(
    client: httpx.AsyncClient, stage: ApiStage, database_url: str, name: OverrideField
) -> None:
    others = frozenset(OverrideField) - {name}
    stage.services.agents.replace_all([replace(OPEN, overrides=others)])

    response = await send(client, {name.value: ALL[name.value]})

    allowed = ", ".join(field for field in OverrideField if field is not name)
    assert_refused(response, f"overrides.{name}", f"does not allow requests to override {name}; it allows: {allowed}.")
    assert await stored_inputs(database_url) == []


async def test_an_agent_that_is_gone_keeps_the_message(
    client: httpx.AsyncClient, stage: ApiStage, database_url: str
) -> None:
    session = await open_session(client)
    stage.services.agents.replace_all([])

    response = await client.post(f"{session}/messages", json={"content": "hi", "overrides": {"model": "openai:big"}})

    assert response.status_code == 200
    assert len(await stored_inputs(database_url)) == 1


async def test_an_unknown_session_is_not_found_whatever_is_overridden(client: httpx.AsyncClient) -> None:
    path = f"/v1/sessions/{'0' * 8}-0000-7000-8000-{'0' * 12}/messages"

    assert (await client.post(path, json={"content": "hi", "overrides": ALL})).status_code == 404


async def test_a_key_with_other_overrides_is_another_request(client: httpx.AsyncClient, database_url: str) -> None:
    session, key = await open_session(client), {"Idempotency-Key": "k"}

    async def post(overrides: object) -> httpx.Response:
        body = {"content": "hi"} | ({} if overrides is None else {"overrides": overrides})
        return await client.post(f"{session}/messages", json=body, headers=key)

    assert (await post({"temperature": 1})).status_code == 200
    again = await post({"temperature": 1.0, "model": None})
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    for other in ({"temperature": 0}, {"temperature": 1, "instructions": "Be brief."}, None):
        assert (await post(other)).status_code == 409
    assert len(await stored_inputs(database_url)) == 1


async def test_agents_tell_what_they_allow(client: httpx.AsyncClient, stage: ApiStage) -> None:
    stage.services.agents.replace_all([replace(OPEN, overrides=frozenset({OverrideField.MODEL}))])

    (agent,) = (await client.get("/v1/agents")).json()["data"]

    assert (agent["overrides"], agent["override_models"]) == (["model"], ["offline", "openai:big"])


def assert_refused(response: httpx.Response, field: str, told: str) -> None:
    assert response.status_code == 422, response.text
    (error,) = response.json()["errors"]
    assert error["field"] == field
    assert told in error["detail"]


async def test_another_agent_answers_from_the_next_message_on(database: Database) -> None:
    async with set_stage(database).client() as client:
        session = await open_session(client)
        changed = await client.patch(session, json={"agent": "researcher"})
        refused = await client.patch(session, json={"agent": "nobody"})

        assert changed.json()["agent"] == "researcher"
        assert (await client.get(session)).json()["agent"] == "researcher"
        assert refused.status_code == httpx.codes.NOT_FOUND
        assert "nobody" in refused.json()["detail"]


SAID = "the flag --enable-this is not set"
ERROR = RunError("model_invalid_request", "The server was started without tools.", SAID)
OPERATOR = (Scope.READ, Scope.WRITE, Scope.OPERATE)


async def send_provider(
    client: httpx.AsyncClient, *, accept: str = "application/json", prefer: str = ""
) -> httpx.Response:
    session = await open_session(client)
    headers = {"Accept": accept, "Prefer": prefer}
    return await client.post(f"{session}/messages", json={"content": "hi"}, headers=headers)


async def all_answers(client: httpx.AsyncClient) -> dict[str, Any]:
    """Return the problem of a failed turn, and the run as the routes of runs answer it."""
    problem = (await send_provider(client)).json()
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
        refused = await send_provider(client)

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
        assert (await send_provider(client)).json()["provider_message"] == SAID


async def test_the_events_of_a_run_never_have_it(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("ada", *OPERATOR)) as client:
        streamed = await send_provider(client, accept="text/event-stream")

    assert "run.failed" in streamed.text
    assert ERROR.detail in streamed.text
    assert "provider_message" not in streamed.text
    assert SAID not in streamed.text


async def test_without_words_of_the_provider_the_problem_has_no_member_for_them(keyed: ApiStage) -> None:
    keyed.turns.error = RunError("turn_timeout", "Too slow.")
    async with keyed.client(key=await keyed.key("ada", *OPERATOR)) as client:
        problem = (await send_provider(client)).json()

    assert "provider_message" not in problem
    assert problem["run"]["error"]["provider_message"] == ""


async def test_the_scope_alone_allows_no_request(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("ada", Scope.OPERATE)) as client:
        assert (await client.get("/v1/sessions")).status_code == 403
