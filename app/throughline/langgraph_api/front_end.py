"""LangGraph's HTTP interface as a front end: its routes and their document."""

from functools import cache

from fastapi import FastAPI, Response
from pydantic.json_schema import models_json_schema

from throughline.http import route_errors
from throughline.http.app import FrontEnd
from throughline.http.documents import (
    ERRORS,
    JSON,
    REF,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    SECURITY,
    SERVERS,
    Json,
    describe_routes,
)
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import MEDIA_TYPE, JsonResponse, json_bytes
from throughline.http.services import ApiConfig
from throughline.langgraph_api import absent_routes, assistants, runs, threads
from throughline.langgraph_api.absent_routes import LANGGRAPH, PREFIX
from throughline.langgraph_api.assistants import CountAssistants, SearchAssistants
from throughline.langgraph_api.request import CreateRun
from throughline.langgraph_api.thread_requests import (
    ChangeThread,
    CountThreads,
    CreateThread,
    ReadCheckpoint,
    ReadHistory,
    SearchThreads,
)
from throughline.wire.service import Problem

BODIES = (
    CountAssistants,
    SearchAssistants,
    CreateThread,
    ChangeThread,
    CountThreads,
    SearchThreads,
    ReadCheckpoint,
    ReadHistory,
    CreateRun,
    Problem,
)
DESCRIPTION = (
    "The routes that LangGraph's SDKs call, with agents as assistants and sessions as threads. LangGraph describes the "
    "objects that they return; what differs is in the guide to this interface. `/openapi.json` has the other routes."
)
ANY: Json = {"description": "done", "content": {JSON: {"schema": {"description": "a value as LangGraph describes it"}}}}
router = PrefixRouter(prefix=PREFIX, tags=[LANGGRAPH])


@router.get("/ok")
async def get_ok() -> Response:
    """Return that the interface is served. No key is needed."""
    return JsonResponse({"ok": True})


@router.get("/info")
async def get_info() -> Response:
    """Return what this interface has. No key is needed."""
    flags: Json = {"assistants": True, "crons": False, "langsmith": False, "store": False}
    return JsonResponse({"version": "throughline", "flags": flags, "host": {"kind": "self-hosted"}})


def document(app: FastAPI, *, is_key_needed: bool) -> Json:
    """Return the document of the interface's routes, with their errors."""
    made = describe_routes(app, {LANGGRAPH}, is_key_needed=is_key_needed)
    _, found = models_json_schema([(model, "validation") for model in BODIES], ref_template=REF)
    for path, item in made["paths"].items():
        for operation in item.values():
            _describe(path, operation)
    return {
        "openapi": "3.1.0",
        "info": {**made["info"], "title": "Throughline, LangGraph's interface", "description": DESCRIPTION},
        "servers": SERVERS,
        "paths": made["paths"],
        "components": {
            "schemas": found["$defs"],
            "securitySchemes": SECURITY,
            "parameters": REQUEST_HEADERS,
            "headers": RESPONSE_HEADERS,
        },
    }


def _describe(path: str, operation: Json) -> None:
    """Replace what FastAPI says of the answers, which it cannot know."""
    raised = [*operation.pop(ERRORS, ()), *route_errors.ANY_ROUTE, *route_errors.CONNECTION]
    raised += route_errors.AUTHENTICATION if operation["security"] else ()
    raised += route_errors.PATH if "{" in path else ()
    raised += route_errors.BODY if "requestBody" in operation else ()
    raised += route_errors.PARAMETERS if operation.get("parameters") else ()
    schema = {"$ref": REF.format(model="Problem")}
    operation["responses"] = {"200": ANY} | {
        str(status): {"description": route_errors.describe_codes(found), "content": {MEDIA_TYPE: {"schema": schema}}}
        for status, found in route_errors.by_status(raised).items()
    }


def _set_up(app: FastAPI, config: ApiConfig) -> None:
    """Serve the document, which is made at the first request for it."""
    made = cache(lambda: json_bytes(document(app, is_key_needed=config.is_key_needed)))

    @app.api_route("/openapi-langgraph.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def read_langgraph_document() -> Response:
        return Response(made(), media_type="application/json")


LANGGRAPH_API = FrontEnd(
    "LangGraph's interface, which is served at `/langgraph`, has a document of its own: `/openapi-langgraph.json`.",
    (router, absent_routes.router, assistants.router, threads.router, runs.router),
    _set_up,
)
