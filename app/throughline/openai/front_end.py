"""OpenAI's interface as a front end: its routes, their errors and their document."""

from typing import Any

from fastapi import FastAPI

from throughline.execution.compute_threads import OwnerLimits
from throughline.http.app import FrontEnd
from throughline.http.documents import ERRORS, JSON, REF, FrontEndDocument, Json
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


def _describe(_path: str, operation: Json) -> None:
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


DOCUMENT = FrontEndDocument(
    "/openapi-openai.json",
    OPENAI,
    title="Throughline, OpenAI's interface",
    bodies=BODIES,
    describe_operation=_describe,
    description=DESCRIPTION,
    schemas={"OpenAIError": ERROR},
    adapt_schema=_with_any_of,
)


def _set_up(app: FastAPI, config: ApiConfig) -> None:
    """Answer on unknown paths of OpenAI's in their form, and serve the document."""
    add_absent_routes(app)
    app.state.websockets = OwnerLimits(config.max_websockets, max(1, config.max_websockets // 2))
    DOCUMENT.serve(app, is_key_needed=config.is_key_needed)


OPENAI_API = FrontEnd(
    "OpenAI's interface, which is served at `/v1/responses`, `/v1/conversations` and `/v1/chat/completions` too, has a "
    "document of its own: `/openapi-openai.json`.",
    tuple(room.router for room in (models, chat, compact, responses, websocket, conversations)),
    _set_up,
)
