"""The OpenAPI document of the API.

It adds what FastAPI cannot derive from the routes' signatures: bodies that routes parse themselves, problem documents
and API keys.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from throughline.api.http.problem_documents import MEDIA_TYPE
from throughline.api.http.sse import MEDIA_TYPE as EVENT_STREAM
from throughline.api.native.import_openai import ImportSession
from throughline.api.native.memory_requests import ChangeMemory, CreateMemory, SearchMemories
from throughline.api.native.requests import ChangeSession, CreateSession, PreviewContext, SendMessage, Summarize
from throughline.api.native.resume_requests import ResumeRun
from throughline.wire.event_schemas import UNION, event_schemas
from throughline.wire.service import Problem

Json: TypeAlias = dict[str, Any]  # Any: an OpenAPI document has no type of its own
REF = "#/components/schemas/{model}"
BODIES = (
    CreateSession,
    ChangeSession,
    SendMessage,
    PreviewContext,
    Summarize,
    CreateMemory,
    ChangeMemory,
    SearchMemories,
    ImportSession,
    ResumeRun,
)
SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "a key created by `throughline keys create`"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "the same key"},
}
ALWAYS = {"401": "no valid key", "403": "the key lacks the scope", "500": "a defect", "503": "try again later"}
WITH_ID = {"404": "does not exist, or belongs to another user"}
WITH_INPUT = {"422": "a value is not valid"}
WITH_BODY = {
    "400": "not JSON",
    "408": "the body came too slowly",
    "409": "conflicts with the stored state",
    "413": "the body is too large",
    "415": "the body is not plain JSON",
}


def json_body(model: type[BaseModel], *, is_required: bool = True) -> Json:
    """Return the `openapi_extra` of a route that parses its own JSON body."""
    schema = {"$ref": REF.format(model=model.__name__)}
    return {"requestBody": {"required": is_required, "content": {"application/json": {"schema": schema}}}}


def event_stream() -> Json:
    """Return the content of a response that is an event stream: text that decodes to a list of events."""
    events = {"type": "array", "items": {"$ref": REF.format(model=UNION)}}
    schema = {"type": "string", "contentMediaType": EVENT_STREAM, "contentSchema": events}
    return {EVENT_STREAM: {"schema": schema}}


def header(name: str, description: str, **schema: str | int) -> Json:
    """Return an OpenAPI header parameter."""
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", **schema},
    }


PREFER = header("Prefer", "`respond-async`: answer 202 at once; other values are ignored")
IDEMPOTENCY_HEADER = header(
    "Idempotency-Key",
    "a repeated request with the same key and body gets the same answer and does nothing twice",
    minLength=1,
    maxLength=255,
    pattern="^[ -~]+$",
)


def document(app: FastAPI, *, is_key_needed: bool) -> Json:
    """Return the application's OpenAPI document. It is created once and cached."""
    if app.openapi_schema is None:
        made: Json = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
        )
        _add_components(made["components"])
        operations = [(path, operation) for path, item in made["paths"].items() for operation in item.values()]
        for path, operation in operations:
            operation["responses"].pop("422", None)
            if path.startswith("/v1/"):
                operation["security"] = [{name: []} for name in SECURITY] + ([] if is_key_needed else [{}])
                _add_problems(path, operation)
        app.openapi_schema = made
    return app.openapi_schema


def _add_components(components: Json) -> None:
    _, found = models_json_schema([(model, "validation") for model in (*BODIES, Problem)], ref_template=REF)
    schemas = components.setdefault("schemas", {})
    schemas.update(found["$defs"] | event_schemas(REF))
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["securitySchemes"] = SECURITY


def _add_problems(path: str, operation: Json) -> None:
    expected = dict(ALWAYS)
    if "{" in path or "requestBody" in operation:
        expected |= WITH_ID
    if "requestBody" in operation or operation.get("parameters"):
        expected |= WITH_INPUT
    if "requestBody" in operation:
        expected |= WITH_BODY
    for status, description in (expected | {"default": "any other problem"}).items():
        operation["responses"].setdefault(status, _problem(description))


def _problem(description: str) -> Mapping[str, Any]:
    return {"description": description, "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(model="Problem")}}}}
