"""Maker of the OpenAPI document, for `api/app.py`.

It adds what FastAPI cannot derive from the routes' signatures: authentication, errors, examples, events, and the bodies
that routes parse themselves.
"""

from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic.json_schema import models_json_schema

from throughline.api.http import route_errors
from throughline.api.http.admitted_request import as_key_holder, as_reader, as_writer
from throughline.api.http.headers import KEY_HEADER, REPLAYED
from throughline.api.http.problem_documents import MEDIA_TYPE
from throughline.api.native.documented import (
    ERRORS,
    ON_BEHALF_OF,
    REF,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    Json,
    request_header,
    response_headers,
)
from throughline.api.native.imports import ImportSession
from throughline.api.native.memories import ChangeMemory, CreateMemory, SearchMemories
from throughline.api.native.requests import (
    ChangeSession,
    CreateSession,
    PreviewContext,
    ResumeRun,
    SendMessage,
    Summarize,
)
from throughline.api.native.tokens import CreateToken
from throughline.api.openai.errors import OPENAI
from throughline.api.openapi.examples import add_examples
from throughline.api.openapi.openai_document import openai_document
from throughline.domain.keys import Scope
from throughline.wire.events import event_schemas
from throughline.wire.service import Problem

SCHEMA = {"$ref": REF.format(model="Problem")}


def add_errors(path: str, operation: Json, *, is_admitted: bool) -> None:
    """Add the problem documents that an operation can answer with, by their HTTP status.

    `is_admitted` says whether the operation authenticates its requests. A documented answer of the same status stays.
    """
    responses = operation["responses"]
    responses.pop(str(HTTPStatus.UNPROCESSABLE_ENTITY.value), None)  # FastAPI's own
    raised = _raised(path, operation, is_admitted=is_admitted)
    replayed = (REPLAYED,) if _takes_key(operation) else ()
    for status, codes in route_errors.by_status(raised).items():
        responses.setdefault(str(status), _problem(codes, (*route_errors.HEADERS.get(status, ()), *replayed)))
    responses["default"] = _problem(route_errors.CONNECTION, ())


def _raised(path: str, operation: Json, *, is_admitted: bool) -> list[str]:
    """Return the codes of the errors that an operation can raise, and remove its own list of them."""
    raised = [*route_errors.ANY_ROUTE, *operation.pop(ERRORS, ())]
    if is_admitted:
        raised += route_errors.AUTHENTICATION
    if "{" in path:
        raised += route_errors.PATH
    if operation.get("parameters"):
        raised += route_errors.PARAMETERS
    if "requestBody" in operation:
        raised += route_errors.BODY
    if _takes_key(operation):
        raised += route_errors.IDEMPOTENCY
    return raised


def _takes_key(operation: Json) -> bool:
    return request_header(KEY_HEADER) in operation.get("parameters", ())


def _problem(codes: Sequence[str], headers: Sequence[str]) -> Json:
    found: Json = {"description": route_errors.describe_codes(codes), "content": {MEDIA_TYPE: {"schema": SCHEMA}}}
    return {**found, "headers": response_headers(*headers)} if headers else found


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
    CreateToken,
)
SECURITY = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "a key created by `throughline keys create`, or a token made by `POST /v1/tokens`",
    },
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "the same key or token"},
}
SCOPES = {as_reader: (Scope.READ,), as_writer: (Scope.WRITE,), as_key_holder: ()}
"""The scopes that a key needs, by the dependency that admits the request. Where there is none, any key will do."""

TAGS = {
    "messages": "Send messages, read the history, pin and redact.",
    "search": "Find messages by words and by meaning.",
    "sessions": "Conversations with an agent: make, change, delete, export and import them.",
    "runs": "The state and the events of turns.",
    "context": "How full the window of a session is, and what a message would do to it.",
    "summaries": "The versions of a session's summary.",
    "memories": "Short texts that a user stores.",
    "usage": "What model calls used and cost.",
    "tokens": "Short-lived secrets for browsers.",
    "users": "Erase a user with everything of them.",
    "agents": "The agents that sessions can be opened with.",
    "problems": "Cause and remedy of each error. No key is needed.",
    "health": "For operators and monitoring. No key is needed.",
}
LICENSE = "Apache-2.0"
SERVERS = [
    {"url": "/", "description": "the service that this document was read from"},
    {"url": "http://127.0.0.1:8000", "description": "a service of this machine at the default address"},
]


def operation_id(route: APIRoute) -> str:
    """Return the operation id of a route: the name of its function in lowerCamelCase."""
    first, *others = route.name.split("_")
    return first + "".join(word.capitalize() for word in others)


def document(app: FastAPI, *, is_key_needed: bool) -> Json:
    """Return the application's OpenAPI document, without OpenAI's routes. It is created once and cached."""
    if app.openapi_schema is None:
        app.openapi_schema, _ = _make(app, is_key_needed=is_key_needed)
    return app.openapi_schema


def document_of_openai(app: FastAPI, *, is_key_needed: bool) -> Json:
    """Return the OpenAPI document of the application's routes in OpenAI's form."""
    return _make(app, is_key_needed=is_key_needed)[1]


def _make(app: FastAPI, *, is_key_needed: bool) -> tuple[Json, Json]:
    made: Json = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=[{"name": name, "description": description} for name, description in TAGS.items()],
        servers=SERVERS,
        license_info={"name": LICENSE, "identifier": LICENSE},
    )
    made.setdefault("components", {})
    _add_components(made["components"])
    needed = dict(_needed_scopes(app))
    for path, item in made["paths"].items():
        for method, operation in item.items():
            scopes = needed.get((path, method))
            if scopes is None:
                operation["security"] = []
            else:
                _add_authentication(operation, scopes, is_key_needed=is_key_needed or not scopes)
            if OPENAI not in operation["tags"]:
                add_errors(path, operation, is_admitted=scopes is not None)
                add_examples(operation)
    return made, openai_document(_openai_paths(made["paths"]), made["info"], SERVERS, SECURITY)


def _openai_paths(paths: Json) -> Json:
    """Remove the paths of OpenAI's routes, and return them."""
    named = [path for path, item in paths.items() if any(OPENAI in operation["tags"] for operation in item.values())]
    return {path: paths.pop(path) for path in named}


def _add_components(components: Json) -> None:
    _, found = models_json_schema([(model, "validation") for model in (*BODIES, Problem)], ref_template=REF)
    schemas = components.setdefault("schemas", {})
    schemas.update(found["$defs"] | event_schemas(REF))
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _remove_defaults(schemas.values())
    components["securitySchemes"] = SECURITY
    components["parameters"] = REQUEST_HEADERS
    components["headers"] = RESPONSE_HEADERS


def _remove_defaults(schemas: Iterable[Json]) -> None:
    """Remove the defaults of fields.

    Generated clients would otherwise require such fields, or send them although an omitted field stays as it is.
    """
    for schema in schemas:
        for field in schema.get("properties", {}).values():
            field.pop("default", None)


def _needed_scopes(app: FastAPI) -> Iterator[tuple[tuple[str | None, str], Sequence[Scope]]]:
    """Yield path, method and needed scopes of each route that authenticates its requests."""
    for route in iter_route_contexts(app.routes):
        dependencies = route.dependant.dependencies if isinstance(route.original_route, APIRoute) else ()
        for scopes in (SCOPES[each.call] for each in dependencies if each.call in SCOPES):
            yield from (((route.path_format, method.lower()), scopes) for method in route.methods or ())


def _add_authentication(operation: Json, scopes: Sequence[Scope], *, is_key_needed: bool) -> None:
    names = [scope.value for scope in scopes]
    operation["security"] = [{scheme: names} for scheme in SECURITY] + ([] if is_key_needed else [{}])
    operation.setdefault("parameters", []).append(request_header(ON_BEHALF_OF))
