"""The OpenAPI document of the REST interface.

It adds what FastAPI cannot derive from the routes' signatures: errors, examples, events, and the bodies that routes
parse themselves.
"""

from collections.abc import Iterable
from http import HTTPStatus

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from throughline.api.examples import add_examples
from throughline.api.imports import ImportSession
from throughline.api.keys import CreateKey
from throughline.api.memories import ChangeMemory, CreateMemory, SearchMemories
from throughline.api.requests import (
    BranchSession,
    ChangeSession,
    CreateSession,
    PreviewContext,
    ResumeRun,
    SendMessage,
    Summarize,
)
from throughline.api.tokens import CreateToken
from throughline.http import route_errors
from throughline.http.documents import (
    PROBLEM,
    REF,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    SECURITY,
    UNION,
    Json,
    describe_error,
    describe_errors,
    describe_routes,
    pop_error_codes,
    takes_idempotency_key,
)
from throughline.http.headers import REPLAYED
from throughline.wire.events import EVENTS, EventData
from throughline.wire.service import Problem

BODIES = (
    CreateSession,
    BranchSession,
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
    CreateKey,
)
TAGS = {
    "messages": "Send messages, read the history, pin and redact.",
    "search": "Find messages by words and by meaning.",
    "sessions": "Conversations with an agent: make, branch, change, delete, export and import them.",
    "runs": "The state and the events of turns.",
    "context": "How full the window of a session is, and what a message would do to it.",
    "summaries": "The versions of a session's summary.",
    "memories": "Short texts that a user stores.",
    "usage": "What model calls used and cost.",
    "tokens": "Short-lived secrets for browsers.",
    "users": "Erase a user with everything of them.",
    "agents": "The agents that sessions can be opened with.",
    "operators": "For keys with the scope `operate`: the state of the service, the runs of all users, and keys.",
    "problems": "Cause and remedy of each error. No key is needed.",
    "health": "For operators and monitoring. No key is needed.",
}


def _add_errors(path: str, operation: Json) -> None:
    """Add the problem documents that an operation can answer with, by their HTTP status.

    A documented answer of the same status stays.
    """
    responses = operation["responses"]
    responses.pop(str(HTTPStatus.UNPROCESSABLE_ENTITY.value), None)  # FastAPI's own
    raised = pop_error_codes(path, operation)
    replayed = (REPLAYED,) if takes_idempotency_key(operation) else ()
    for status, described in describe_errors(raised, PROBLEM, *replayed).items():
        responses.setdefault(status, described)
    responses["default"] = describe_error(route_errors.CONNECTION, PROBLEM)


def document(app: FastAPI, *, is_key_needed: bool) -> Json:
    """Return the document of the REST routes. It is created once and cached."""
    if app.openapi_schema is None:
        app.openapi_schema = _make(app, is_key_needed=is_key_needed)
    return app.openapi_schema


def _make(app: FastAPI, *, is_key_needed: bool) -> Json:
    made = describe_routes(app, TAGS, is_key_needed=is_key_needed)
    made["tags"] = [{"name": name, "description": description} for name, description in TAGS.items()]
    made.setdefault("components", {})
    _add_components(made["components"])
    for path, item in made["paths"].items():
        for operation in item.values():
            _add_errors(path, operation)
            add_examples(operation)
    return made


def _add_components(components: Json) -> None:
    _, found = models_json_schema([(model, "validation") for model in (*BODIES, Problem)], ref_template=REF)
    schemas = components.setdefault("schemas", {})
    schemas.update(found["$defs"] | _event_schemas())
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _remove_defaults(schemas.values())
    components["securitySchemes"] = SECURITY
    components["parameters"] = REQUEST_HEADERS
    components["headers"] = RESPONSE_HEADERS


def _event_schemas() -> Json:
    """Return the schemas by name: the union of all events, one for each event, and those of the events' data.

    They describe an event as a parser of event streams returns it, with `data` read as JSON.
    """
    shapes = dict.fromkeys(EVENTS.values())
    _, data = models_json_schema([(shape, "serialization") for shape in shapes], ref_template=REF)
    names = {event: _schema_name(event) for event in EVENTS}
    references = {event: REF.format(model=name) for event, name in names.items()}
    union = {
        "title": UNION,
        "description": "An event of a run. Later versions may send other events: ignore those.",
        "oneOf": [{"$ref": reference} for reference in references.values()],
        "discriminator": {"propertyName": "event", "mapping": references},
    }
    return {
        **data["$defs"],
        **{name: _event_schema(event, EVENTS[event]) for event, name in names.items()},
        UNION: union,
    }


def _schema_name(event: str) -> str:
    """Return the name of an event's schema: `RunStartedEvent` for `run.started`."""
    return "".join(word.capitalize() for word in event.split(".")) + "Event"


def _event_schema(event: str, shape: type[EventData]) -> Json:
    return {
        "type": "object",
        "title": _schema_name(event),
        "description": (shape.__doc__ or "").strip(),
        "required": ["id", "event", "data"],
        "properties": {
            "id": {"type": "string", "description": "number of the event in its run; send it as `Last-Event-ID`"},
            "event": {"type": "string", "const": event},
            "data": {"$ref": REF.format(model=shape.__name__)},
        },
    }


def _remove_defaults(schemas: Iterable[Json]) -> None:
    """Remove the defaults of fields.

    Generated clients would otherwise require such fields, or send them although an omitted field stays as it is.
    """
    for schema in schemas:
        for field in schema.get("properties", {}).values():
            field.pop("default", None)
