"""OpenAI's interface as a front end: its routes, their errors and their document."""

from functools import cache
from typing import Any

from fastapi import FastAPI, Response
from pydantic.json_schema import models_json_schema

from throughline.execution.compute_threads import OwnerLimits
from throughline.http.app import FrontEnd
from throughline.http.documents import ERRORS, JSON, REF, SECURITY, SERVERS, Json, describe_routes
from throughline.http.problem_documents import json_bytes
from throughline.http.services import ApiConfig
from throughline.openai import conversations, models
from throughline.openai.chat import routes as chat
from throughline.openai.chat.request import CreateCompletion
from throughline.openai.conversations import AddItems, ChangeConversation, CreateConversation
from throughline.openai.errors import OPENAI, add_absent_routes
from throughline.openai.responses import compact, websocket
from throughline.openai.responses import routes as responses
from throughline.openai.responses.compact import CompactConversation, CountTokens
from throughline.openai.responses.request import CreateResponse

BODIES = (
    CreateResponse,
    CreateCompletion,
    CompactConversation,
    CountTokens,
    CreateConversation,
    ChangeConversation,
    AddItems,
)
DESCRIPTION = (
    "The routes that OpenAI's clients call, with agents as models. OpenAI describes the objects that they return; what "
    "differs is in the guide to OpenAI's interface. `/v1/responses` is a WebSocket too. "
    "`/openapi.json` has the other routes."
)
OBJECTS: Json = {"type": "object", "description": "an object as OpenAI describes it", "additionalProperties": True}
ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"], "description": "a code of this service, or OpenAI's for it"},
            },
        }
    },
}


def document(app: FastAPI, *, is_key_needed: bool) -> Json:
    """Return the document of the application's routes in OpenAI's form."""
    made = describe_routes(app, {OPENAI}, is_key_needed=is_key_needed)
    _, found = models_json_schema([(model, "validation") for model in BODIES], ref_template=REF)
    schemas = {name: _with_any_of(schema) for name, schema in found["$defs"].items()}
    for item in made["paths"].values():
        for operation in item.values():
            _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {**made["info"], "title": "Throughline, OpenAI's interface", "description": DESCRIPTION},
        "servers": SERVERS,
        "paths": made["paths"],
        "components": {"schemas": {**schemas, "OpenAIError": ERROR}, "securitySchemes": SECURITY},
    }


def _describe(operation: Json) -> None:
    """Replace what FastAPI says of the answers, which it cannot know."""
    operation.pop(ERRORS, None)
    error = {"$ref": REF.format(model="OpenAIError")}
    operation["responses"] = {
        "200": {"description": "done", "content": {JSON: {"schema": OBJECTS}}},
        "default": {"description": "an error in OpenAI's form", "content": {JSON: {"schema": error}}},
    }


def _with_any_of(schema: Any) -> Any:  # noqa: ANN401  # a part of a JSON schema
    """Return the schema with `anyOf` for each `oneOf`: an item of a known type fits that of unknown types as well."""
    if isinstance(schema, dict):
        return {"anyOf" if name == "oneOf" else name: _with_any_of(value) for name, value in schema.items()}
    return [_with_any_of(part) for part in schema] if isinstance(schema, list) else schema


def _set_up(app: FastAPI, config: ApiConfig) -> None:
    """Answer on unknown paths of OpenAI's in their form, and serve the document, made at the first request for it."""
    add_absent_routes(app)
    app.state.websockets = OwnerLimits(config.max_websockets, max(1, config.max_websockets // 2))
    made = cache(lambda: json_bytes(document(app, is_key_needed=config.is_key_needed)))

    @app.api_route("/openapi-openai.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def read_openai_document() -> Response:
        return Response(made(), media_type="application/json")


OPENAI_API = FrontEnd(
    "OpenAI's interface, which is served at `/v1/responses`, `/v1/conversations` and `/v1/chat/completions` too, has a "
    "document of its own: `/openapi-openai.json`.",
    tuple(room.router for room in (models, chat, compact, responses, websocket, conversations)),
    _set_up,
)
