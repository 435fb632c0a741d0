"""LangGraph's HTTP interface as a front end: its routes and their document."""

from fastapi import Response

from throughline.http import route_errors
from throughline.http.app import FrontEnd
from throughline.http.documents import JSON, PROBLEM, FrontEndDocument, Json, describe_errors, pop_error_codes
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.langgraph_api import absent_routes, assistants, runs, threads
from throughline.langgraph_api.absent_routes import LANGGRAPH, PREFIX
from throughline.langgraph_api.request import CreateRun
from throughline.wire.service import Problem

BODIES = (
    *(assistants.CountAssistants, assistants.SearchAssistants, threads.CreateThread, threads.ChangeThread),
    *(threads.CountThreads, threads.SearchThreads, threads.ReadCheckpoint, threads.ReadHistory, CreateRun, Problem),
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


def _describe(path: str, operation: Json) -> None:
    """Replace what FastAPI says of the answers, which it cannot know."""
    raised = [*pop_error_codes(path, operation), *route_errors.CONNECTION]
    operation["responses"] = {"200": ANY, **describe_errors(raised, PROBLEM)}


DOCUMENT = FrontEndDocument(
    "/openapi-langgraph.json",
    LANGGRAPH,
    title="Throughline, LangGraph's interface",
    bodies=BODIES,
    describe_operation=_describe,
    description=DESCRIPTION,
)
LANGGRAPH_API = FrontEnd(
    "LangGraph's interface, which is served at `/langgraph`, has a document of its own: `/openapi-langgraph.json`.",
    (runs.begin_router, absent_routes.router, runs.router, threads.router, assistants.router, router),
    lambda app, config: DOCUMENT.serve(app, is_key_needed=config.is_key_needed),
)
