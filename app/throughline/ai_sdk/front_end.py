"""The AI SDK's interface as a front end: its routes and their document."""

from functools import cache
from http import HTTPStatus

from fastapi import FastAPI, Response
from pydantic.json_schema import models_json_schema

from throughline.ai_sdk.request import SendChat
from throughline.ai_sdk.routes import TAG, router
from throughline.http import route_errors
from throughline.http.app import FrontEnd
from throughline.http.documents import (
    ERRORS,
    REF,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    SECURITY,
    SERVERS,
    Json,
    describe_routes,
    response_headers,
)
from throughline.http.problem_documents import json_bytes
from throughline.http.services import ApiConfig

TEXT = "text/plain"


def document(app: FastAPI, *, is_key_needed: bool) -> Json:
    """Return the document of the application's routes for the AI SDK."""
    made = describe_routes(app, {TAG}, is_key_needed=is_key_needed)
    for item in made["paths"].values():
        for operation in item.values():
            _add_errors(operation)
    _, found = models_json_schema([(SendChat, "validation")], ref_template=REF)
    return {
        "openapi": "3.1.0",
        "info": {**made["info"], "title": "Throughline, the AI SDK's interface"},
        "servers": SERVERS,
        "paths": made["paths"],
        "components": {
            "schemas": found["$defs"],
            "securitySchemes": SECURITY,
            "parameters": REQUEST_HEADERS,
            "headers": RESPONSE_HEADERS,
        },
    }


def _add_errors(operation: Json) -> None:
    """Add the errors of an operation by their status. Each is a sentence, as `useChat` shows it."""
    operation["responses"].pop(str(HTTPStatus.UNPROCESSABLE_ENTITY.value), None)  # FastAPI's own
    raised = [*route_errors.ANY_ROUTE, *operation.pop(ERRORS, ()), *route_errors.AUTHENTICATION, *route_errors.PATH]
    if "requestBody" in operation:
        raised += (*route_errors.BODY, *route_errors.IDEMPOTENCY)
    for status, codes in route_errors.by_status(raised).items():
        operation["responses"][str(status)] = {
            "description": route_errors.describe_codes(codes),
            "content": {TEXT: {"schema": {"type": "string"}}},
            "headers": response_headers(*route_errors.HEADERS.get(status, ())),
        }


def _set_up(app: FastAPI, config: ApiConfig) -> None:
    """Serve the document, made at the first request for it."""
    made = cache(lambda: json_bytes(document(app, is_key_needed=config.is_key_needed)))

    @app.api_route("/openapi-ai-sdk.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def read_ai_sdk_document() -> Response:
        return Response(made(), media_type="application/json")


AI_SDK = FrontEnd(
    "The routes for the AI SDK (`/ai-sdk/{agent}`) have a document of their own: `/openapi-ai-sdk.json`.",
    (router,),
    _set_up,
)
