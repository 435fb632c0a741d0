"""The OpenAPI document says what the routes do, in a form that generators of clients can use.

Every answer of the tests in this folder is compared with it (`fakes/documented_answers.py`).
"""

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from jsonschema import Draft202012Validator

from fakes.api_stage import KEYED, LOCAL, open_session, set_stage
from throughline.db.database import Database
from throughline.wire.context import PreviewOut, SessionContextOut
from throughline.wire.json_shape import Shape
from throughline.wire.messages import MessageOut, MessagePage, PinnedGroup, SearchOut
from throughline.wire.runs import RunOut, TurnOut
from throughline.wire.service import AgentList, Health, Problem
from throughline.wire.sessions import SessionOut, SessionPage, SummarizeOut, SummaryList

Json: TypeAlias = dict[str, Any]
SHORT_NAME = re.compile(r"[a-z]+([A-Z][a-z]+){0,2}")
NOT_OURS = {"call_id", "external_id", "tool_call_id", "summary_id"}
"""Ids that are no UUIDs: providers make those of calls, callers external ones; a number may stand for a summary."""


@pytest.fixture
def document(database: Database) -> Json:
    return set_stage(database, KEYED).app.openapi()


def operations(document: Json) -> Iterator[tuple[str, Json]]:
    for path, item in document["paths"].items():
        for operation in item.values():
            yield path, operation


def find(document: Json, operation_id: str) -> Json:
    return next(made for _, made in operations(document) if made["operationId"] == operation_id)


def named(operation: Json) -> set[str]:
    """Return the names of an operation's parameters."""
    return {item.get("name", item.get("$ref", "").rpartition("/")[2]) for item in operation.get("parameters", ())}


def all_objects(value: object) -> Iterator[Json]:
    """Yield every JSON object in `value`."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from all_objects(item)


def test_every_v1_operation_names_its_problems_and_keys(document: Json) -> None:
    for path, operation in operations(document):
        if path.startswith("/v1/"):
            needed: list[list[str]] = [[]] if path == "/v1/tokens" else [["read"], ["write"]]
            assert [list(kind.values()) for kind in operation["security"]] in [[[scopes]] * 2 for scopes in needed]
            assert {"401", "403", "500", "503", "default"} <= operation["responses"].keys()
            assert "On-Behalf-Of" in named(operation)
        else:
            assert operation["security"] == []


def test_only_routes_that_always_need_a_key_say_so_in_local_mode(database: Database) -> None:
    made = set_stage(database, LOCAL).app.openapi()
    keyed = {operation["operationId"] for _, operation in operations(made) if {} not in (operation["security"] or [{}])}

    assert keyed == {"createToken"}


def test_every_problem_has_the_same_schema(document: Json) -> None:
    for _, operation in operations(document):
        for status, response in operation["responses"].items():
            if status == "default" or (status >= "400" and "application/json" not in response["content"]):
                assert response["content"] == {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                }


def test_a_route_has_the_problems_of_its_parts(document: Json) -> None:
    sent, read, listed = (find(document, name) for name in ("sendMessage", "getSession", "listSessions"))

    assert {"400", "404", "409", "413", "415", "422", "429", "502", "504"} <= sent["responses"].keys()
    assert "`session_busy`" in sent["responses"]["409"]["description"]
    assert not {"400", "409", "413", "415", "429", "502"} & read["responses"].keys()
    assert "404" in read["responses"]
    assert "404" not in listed["responses"]


def test_every_reference_leads_somewhere(document: Json) -> None:
    references = {item["$ref"] for item in all_objects(document) if isinstance(item.get("$ref"), str)}

    assert len(references) > 50
    for reference in references:
        _, _, kind, name = reference.split("/")
        assert name in document["components"][kind], reference


def test_operation_ids_are_short_and_differ(document: Json) -> None:
    names = [operation["operationId"] for _, operation in operations(document)]

    assert len(set(names)) == len(names)
    assert {"sendMessage", "listSessions", "createSession", "followEvents", "getReadiness"} <= set(names)
    assert [name for name in names if not SHORT_NAME.fullmatch(name)] == []


def test_every_tag_is_described_and_used(document: Json) -> None:
    described = {tag["name"]: tag["description"] for tag in document["tags"]}

    assert {tag for _, operation in operations(document) for tag in operation["tags"]} == described.keys()
    assert all(described.values())


def test_our_ids_are_described_as_uuids(document: Json) -> None:
    shapes = document["components"]["schemas"]
    parameters = [item for _, operation in operations(document) for item in operation.get("parameters", ())]
    fields = [field for shape in shapes.values() for field in shape.get("properties", {}).items()]
    ids = [
        (name, [schema, *schema.get("anyOf", ())])
        for name, schema in [*fields, *((item.get("name", ""), item.get("schema", {})) for item in parameters)]
        if name.endswith("_id")
    ]

    assert {"session_id", "run_id", "message_id", "memory_id", "through_id"} <= {name for name, _ in ids}
    assert {name for name, forms in ids if all(form.get("format") != "uuid" for form in forms)} == NOT_OURS
    assert shapes["SessionOut"]["properties"]["id"]["format"] == "uuid"


def test_no_field_has_a_default_that_clients_would_send(document: Json) -> None:
    shapes = document["components"]["schemas"]
    fields = [field for shape in shapes.values() for field in shape.get("properties", {}).values()]

    assert len(fields) > 200
    assert [field for field in fields if "default" in field] == []
    assert shapes["SendMessage"]["required"] == ["content"]
    assert "required" not in shapes["ChangeSession"]


def test_limits_are_in_the_words_of_json_schema(document: Json) -> None:
    by_name = {item["name"]: item["schema"] for item in find(document, "searchSession")["parameters"] if "name" in item}

    assert by_name["after"]["anyOf"][0] == {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
    assert [item for item in all_objects(document) if {"ge", "gt", "le", "lt"} & item.keys()] == []


def test_headers_stand_where_they_mean_something(document: Json) -> None:
    headers = {name: named(find(document, name)) for name in ("sendMessage", "createSession", "followEvents")}

    assert headers["sendMessage"] >= {"Accept", "Prefer", "Idempotency-Key", "X-Client", "On-Behalf-Of"}
    assert headers["createSession"] >= {"Idempotency-Key", "X-Client", "On-Behalf-Of"}
    assert "Accept" not in headers["createSession"]
    assert headers["followEvents"] >= {"Last-Event-ID", "On-Behalf-Of"}
    assert find(document, "createSession")["responses"]["201"]["headers"].keys() == {"Location", "Idempotency-Replayed"}


def test_every_body_and_answer_has_an_example_that_fits(document: Json) -> None:
    checked = 0
    for path, operation in operations(document):
        answers = [answer for status, answer in operation["responses"].items() if status < "300"]
        for holder in (*answers, *([operation["requestBody"]] if "requestBody" in operation else ())):
            for media in holder.get("content", {}).values():
                schema = {**document, **media["schema"]}
                Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(
                    media["example"]
                )
                assert unlike(document, media["schema"], media["example"], is_whole=holder in answers) == [], path
                checked += 1

    assert checked > 40


def unlike(document: Json, schema: Json, value: object, *, is_whole: bool) -> list[str]:
    """Return the fields in which a value and its schema differ; with `is_whole` it has to have all of them."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        found = (unlike(document, each, value, is_whole=is_whole) for each in schema["anyOf"] if "$ref" in each)
        return [] if value is None else next(found, [])
    if isinstance(value, list):
        return [name for each in value for name in unlike(document, schema.get("items", {}), each, is_whole=is_whole)]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    known = schema["properties"]
    inside = [unlike(document, known[name], each, is_whole=is_whole) for name, each in value.items() if name in known]
    differing = value.keys() ^ known.keys() if is_whole else value.keys() - known.keys()
    return [*differing, *(name for names in inside for name in names)]


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
