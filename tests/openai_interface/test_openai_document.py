"""The OpenAPI document of OpenAI's routes: all of them, bodies as clients send them, and none in the other document."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts
from jsonschema import Draft202012Validator

from fakes.api_stage import set_stage
from throughline.db.database import Database
from throughline.openai.errors import PRESENT

RECORDED = Path(__file__).with_name("client_requests.jsonl")
NEEDS_NOTHING = "/v1/models"


@pytest.fixture
async def document(database: Database) -> dict[str, Any]:
    async with set_stage(database).client() as client:
        answer = await client.get("/openapi-openai.json")
        assert (await client.head("/openapi-openai.json")).status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_it_has_all_of_openais_routes_and_the_other_document_names_it(
    database: Database, document: dict[str, Any]
) -> None:
    stage = set_stage(database)
    async with stage.client() as client:
        other = (await client.get("/openapi.json")).json()
    served = {
        (route.path_format, method.lower())
        for route in iter_route_contexts(stage.app.routes)
        if (route.path_format or "").startswith(tuple(f"/v1/{name}" for name in PRESENT))
        for method in route.methods or ()
    }

    assert {(path, method) for path, item in document["paths"].items() for method in item} == served
    assert document["paths"].keys() & other["paths"].keys() == set()
    assert "/openapi-openai.json" in other["info"]["description"]
    assert not any("CreateResponse" in name for name in other["components"]["schemas"])
    ids = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(set(ids)) == len(ids)


def test_bodies_that_clients_send_fit_their_schemas(document: dict[str, Any]) -> None:
    checked = 0
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        sent = json.loads(line)
        operation = document["paths"][sent["path"]]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        Draft202012Validator({**document, **schema}).validate(sent["body"])
        checked += 1

    assert checked > 50
