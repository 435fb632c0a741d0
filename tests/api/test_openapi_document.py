"""The OpenAPI document says what the routes do."""

import pytest
from pydantic import BaseModel

from app.api.native import schemas
from app.db.database import Database
from fakes.api_stage import KEYED, LOCAL, open_session, set_stage


@pytest.fixture
def document(database: Database) -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    return set_stage(database, KEYED).app.openapi()


def test_every_v1_operation_names_its_problems_and_keys(
    document: dict[str, dict[str, dict[str, dict[str, object]]]],
) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path.startswith("/v1/"):
                assert operation["security"]
                responses = operation["responses"]
                assert isinstance(responses, dict)
                assert {"401", "403", "default"} <= set(responses)


def test_every_reference_leads_somewhere(document: dict[str, object]) -> None:
    components = document["components"]
    assert isinstance(components, dict)

    def check(value: object) -> None:
        match value:
            case {"$ref": str(ref)}:
                assert ref.rpartition("/")[2] in components["schemas"], ref
            case dict():
                for item in value.values():
                    check(item)
            case list():
                for item in value:
                    check(item)
            case _:
                pass

    check(document)


async def test_answers_are_as_documented(database: Database) -> None:
    stage = set_stage(database, LOCAL)
    async with stage.client() as client:
        path = await open_session(client)
        turn = await client.post(f"{path}/messages", json={"content": "hi"})
        shown: list[tuple[type[BaseModel], object]] = [
            (schemas.SessionOut, (await client.get(path)).json()),
            (schemas.SessionPage, (await client.get("/v1/sessions")).json()),
            (schemas.MessagePage, (await client.get(f"{path}/messages")).json()),
            (schemas.SearchOut, (await client.get(f"{path}/search?q=hi")).json()),
            (schemas.RunOut, turn.json()["run"]),
            (schemas.MessageOut, turn.json()["message"]),
            (schemas.PreviewOut, (await client.post(f"{path}/context/preview")).json()),
            (schemas.PinnedGroup, (await client.put(f"{path}/messages/{turn.json()['message']['id']}/pin")).json()),
            (schemas.SummaryList, (await client.get(f"{path}/summaries")).json()),
            (schemas.SummarizeOut, (await client.post(f"{path}/summarize")).json()),
            (schemas.AgentList, (await client.get("/v1/agents")).json()),
            (schemas.Health, (await client.get("/health/live")).json()),
            (schemas.Problem, (await client.get("/v1/nothing")).json()),
        ]

    for model, body in shown:
        model.model_validate(body)
        assert isinstance(body, dict)
        assert set(body) <= set(model.model_fields)
