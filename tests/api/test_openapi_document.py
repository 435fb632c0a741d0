"""The OpenAPI document says what the routes do."""

import pytest

from fakes.api_stage import KEYED, LOCAL, open_session, set_stage
from throughline.db.database import Database
from throughline.wire.context import PreviewOut, SessionContextOut
from throughline.wire.json_shape import Shape
from throughline.wire.messages import MessageOut, MessagePage, PinnedGroup, SearchOut
from throughline.wire.runs import RunOut, TurnOut
from throughline.wire.service import AgentList, Health, Problem
from throughline.wire.sessions import SessionOut, SessionPage, SummarizeOut, SummaryList


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
        shown: list[tuple[type[Shape], object]] = [
            (SessionOut, (await client.get(path)).json()),
            (SessionPage, (await client.get("/v1/sessions")).json()),
            (MessagePage, (await client.get(f"{path}/messages")).json()),
            (SearchOut, (await client.get(f"{path}/search?q=hi")).json()),
            (TurnOut, turn.json()),
            (RunOut, turn.json()["run"]),
            (MessageOut, turn.json()["message"]),
            (SessionContextOut, (await client.get(f"{path}/context")).json()),
            (PreviewOut, (await client.post(f"{path}/context/preview")).json()),
            (PinnedGroup, (await client.put(f"{path}/messages/{turn.json()['message']['id']}/pin")).json()),
            (SummaryList, (await client.get(f"{path}/summaries")).json()),
            (SummarizeOut, (await client.post(f"{path}/summarize")).json()),
            (AgentList, (await client.get("/v1/agents")).json()),
            (Health, (await client.get("/health/live")).json()),
            (Problem, (await client.get("/v1/nothing")).json()),
        ]

    for model, body in shown:
        assert isinstance(body, dict)
        assert model.model_validate(body).model_dump(mode="json", exclude_unset=True) == body
        assert body.keys() <= model.model_fields.keys()
