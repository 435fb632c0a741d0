"""The OpenAPI document says what the routes do, in a form that generators of clients can use.

Every answer of the tests in this folder is compared with it (`fakes/api_stage.py`)."""

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import httpx
import pytest
from jsonschema_rs import Draft202012Validator

from fakes.api_stage import KEYED, LOCAL, ApiStage, open_session, set_stage
from throughline.api.front_end import API
from throughline.db.database import Database
from throughline.domain.errors import DatabaseUnavailable
from throughline.http.app import create_app
from throughline.http.headers import prefers_html
from throughline.http.services import ApiConfig, Readiness
from throughline.openai.front_end import OPENAI_API
from throughline.wire.context import PreviewOut, SessionContextOut
from throughline.wire.events import RunOut, TurnOut
from throughline.wire.json_shape import Shape
from throughline.wire.messages import MessageOut, MessagePage, PinnedGroup, SearchOut
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
            needed: list[list[str]] = [[]] if path == "/v1/tokens" else [["read"], ["write"], ["operate"]]
            documented = [list(kind.values()) for kind in operation["security"]]
            either = [[["write"]], [["write"]], [["operate"]], [["operate"]]]
            assert documented in ([either] if path.endswith("/cancel") else [[[scopes]] * 2 for scopes in needed])
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
                Draft202012Validator(schema, validate_formats=True).validate(media["example"])
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


LINK = re.compile(r'(?:src|href)="([^"]*)"')
TYPES = {"js": "text/javascript", "css": "text/css"}


async def test_all_that_the_page_links_to_is_served_here(database: Database) -> None:
    async with set_stage(database, KEYED).client() as client:
        page = await client.get("/docs")
        links = [link for link in LINK.findall(page.text) if link != "data:,"]
        served = {link: await client.get(f"/{link}") for link in links}

    assert page.status_code == 200
    assert sorted(served) == ["docs/start.js", "docs/swagger-ui-bundle.js", "docs/swagger-ui.css"]
    for link, response in served.items():
        assert response.status_code == 200, link
        assert response.headers["content-type"].startswith(TYPES[link.rpartition(".")[2]])
    assert "SwaggerUIBundle" in served["docs/swagger-ui-bundle.js"].text


async def test_the_page_may_load_from_the_service_only_and_runs_no_script_of_its_own(database: Database) -> None:
    async with set_stage(database, KEYED).client() as client:
        page, start = await client.get("/docs"), await client.get("/docs/start.js")

    policy = page.headers["content-security-policy"]
    scripts = re.search(r"script-src ([^;]*)", policy)
    assert scripts is not None
    assert scripts.group(1) == "'self'"
    assert policy.startswith("default-src 'none';")
    assert "://" not in page.text + start.text + policy
    assert re.findall(r"<script>|<style>|style=|\son\w+=", page.text) == []


async def test_the_page_asks_nobody_to_check_the_document(database: Database) -> None:
    async with set_stage(database, KEYED).client() as client:
        start = (await client.get("/docs/start.js")).text
        document = await client.get("/openapi.json")

    assert 'url: "openapi.json"' in start
    assert "validatorUrl: null" in start
    assert document.status_code == 200
    assert "/docs" not in document.json()["paths"]


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
LINKS = {
    "reference": "docs",
    "openapi": "openapi.json",
    "live": "health/live",
    "ready": "health/ready",
    "metrics": "metrics",
}


@pytest.mark.parametrize("config", [KEYED, LOCAL, replace(KEYED, trusted_socket=True)])
async def test_a_program_gets_the_links_as_json(database: Database, config: ApiConfig) -> None:
    async with set_stage(database, config).client() as client:
        answer = await client.get("/")
        served = [(await client.get(f"/{link}")).status_code for link in LINKS.values()]

    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {
        "name": "Throughline",
        "version": "0.0.0",
        "is_key_needed": config is KEYED,
        "links": LINKS,
    }
    assert served == [200] * len(LINKS)


@pytest.mark.parametrize(("config", "words"), [(KEYED, "need an API key"), (LOCAL, "need no API key")])
async def test_a_browser_gets_a_page_that_loads_nothing(database: Database, config: ApiConfig, words: str) -> None:
    async with set_stage(database, config).client() as client:
        page = await client.get("/", headers={"Accept": BROWSER})

    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert re.findall(r'<a href="([^"]*)">', page.text) == list(LINKS.values())
    assert "Throughline 0.0.0" in page.text
    assert words in page.text
    assert page.headers["vary"] == "Accept"
    assert page.headers["content-security-policy"].startswith("default-src 'none';")
    assert re.findall(r"<script|<style|<link(?! rel=\"icon\" href=\"data:,\")|<img|://", page.text) == []


async def test_the_page_is_not_part_of_the_interface(database: Database) -> None:
    async with set_stage(database, KEYED).client() as client:
        document = await client.get("/openapi.json")
        refused = await client.post("/")

    assert "/" not in document.json()["paths"]
    assert refused.status_code == 405


@pytest.mark.parametrize("accept", [BROWSER, "text/html", "text/*, application/json;q=0.5", "TEXT/HTML;q=0.2"])
def test_a_page_is_preferred(accept: str) -> None:
    assert prefers_html([accept])


@pytest.mark.parametrize(
    "accept", ["", "*/*", "application/json", "application/json, text/html;q=0.9", "text/html;q=0", "image/png"]
)
def test_json_is_preferred_to_a_page(accept: str) -> None:
    assert not prefers_html([accept])


async def get(stage: ApiStage, path: str) -> httpx.Response:
    async with stage.client() as client:
        return await client.get(path)


async def test_a_process_that_answers_is_alive_and_ready(database: Database) -> None:
    stage = set_stage(database, KEYED)

    live, ready = await get(stage, "/health/live"), await get(stage, "/health/ready")

    assert live.json()["status"] == "ok"
    assert ready.json() == {"status": "ok", "version": "0.0.0", "checks": {"database": True}, "reasons": {}}


async def test_without_a_database_it_is_alive_but_not_ready(database: Database) -> None:
    stage = set_stage(database, KEYED)

    async def fail() -> Readiness:
        raise DatabaseUnavailable("The database does not answer.")

    stage = replace(stage, app=create_app(replace(stage.services, check_ready=fail), KEYED, (API, OPENAI_API)))

    live, ready = await get(stage, "/health/live"), await get(stage, "/health/ready")

    assert live.status_code == 200
    assert ready.status_code == 503
    assert ready.json()["checks"] == {"database": False}
    assert ready.json()["reasons"] == {"database": "The database does not answer."}


async def test_a_stopping_process_is_not_ready(database: Database) -> None:
    stage = set_stage(database, KEYED)
    stage.services.shutting_down.set()

    assert (await get(stage, "/health/ready")).status_code == 503


async def test_metrics_are_prometheus_text(database: Database) -> None:
    response = await get(set_stage(database, KEYED), "/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_what_is_only_slower_stays_ready_and_says_so(database: Database) -> None:
    stage = set_stage(database, KEYED)

    async def deaf() -> Readiness:
        return Readiness({"database": True}, {"listener": False, "workers": True}, {"listener": "since noon"})

    stage = replace(stage, app=create_app(replace(stage.services, check_ready=deaf), KEYED, (API, OPENAI_API)))

    ready = await get(stage, "/health/ready")

    assert ready.status_code == 200
    assert ready.json()["status"] == "degraded"
    assert ready.json()["checks"] == {"database": True, "listener": False, "workers": True}
    assert ready.json()["reasons"] == {"listener": "since noon"}


async def test_metrics_are_written_beside_the_event_loop(database: Database) -> None:
    stage, written_in = set_stage(database, KEYED), set[threading.Thread]()

    def render() -> tuple[bytes, str]:
        written_in.add(threading.current_thread())
        return b"", "text/plain"

    stage = replace(stage, app=create_app(replace(stage.services, render_metrics=render), KEYED, (API, OPENAI_API)))
    await get(stage, "/metrics")

    assert len(written_in - {threading.current_thread()}) == 1
