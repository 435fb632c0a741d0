"""Routes of LangGraph's interface that this service does not have, and what to use in their place."""

from collections.abc import Mapping

from fastapi import Request, Response

from throughline.domain.errors import PermanentError
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import error_problem

LANGGRAPH = "langgraph"
"""The tag of the routes. They have a document of their own, `langgraph_api/front_end.py`."""

PREFIX = "/langgraph"


class NotServed(PermanentError):
    """The request asks for a route of LangGraph's interface that this service does not have."""

    code = "not_served"


AGENTS = "Assistants are agents, which are files of this service. Change the file."
CRONS = "This service has no crons. Start runs with a scheduler of your own, such as cron."
STORE = "This service has no store. Keep texts of a user with `/v1/memories`."
EVENT_PROTOCOL = "This service has no event protocol. Stream with POST /threads/{thread_id}/runs/stream."
STATE = (
    "The state of a thread cannot be written: its messages are only added to. Send them as the input of a run. "
    "To change its metadata use PATCH /threads/{thread_id}."
)
ABSENT: Mapping[tuple[str, ...], str] = {
    ("POST /assistants", "PATCH /assistants/{id}", "DELETE /assistants/{id}"): AGENTS,
    ("* /assistants/{id}/versions", "* /assistants/{id}/latest"): AGENTS,
    ("* /runs/crons", "* /runs/crons/{rest:path}", "* /threads/{id}/runs/crons"): CRONS,
    ("* /store", "* /store/{rest:path}"): STORE,
    ("POST /threads/{id}/state", "PATCH /threads/{id}/state"): STATE,
    ("* /threads/prune",): "Delete threads one by one with DELETE /threads/{thread_id}.",
    ("* /threads/{id}/commands", "* /threads/{id}/stream/events"): EVENT_PROTOCOL,
    ("* /threads/{id}/stream",): "Join a run with GET /threads/{thread_id}/runs/{run_id}/stream.",
    ("DELETE /threads/{id}/runs/{run_id}",): "A run stays with its messages. Delete the thread.",
    ("* /runs/cancel",): "Cancel runs one by one with POST /threads/{thread_id}/runs/{run_id}/cancel.",
    ("* /mcp", "* /mcp/{rest:path}"): "The MCP server is at `/mcp`.",
    ("* /a2a/{rest:path}",): "This service does not speak A2A. Use the routes for runs.",
    ("* /ui/{rest:path}",): "Agents bring no components for user interfaces.",
}
"""What to use, by the methods and paths of the routes."""

router = PrefixRouter(prefix=PREFIX, include_in_schema=False)


def _add(route: str, instead: str) -> None:
    async def refuse(request: Request) -> Response:
        shown = request.url.path.removeprefix(PREFIX)[:80]
        return error_problem(NotServed(f"{request.method} {shown} is not served. {instead}"))

    method, _, path = route.partition(" ")
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"] if method == "*" else [method]
    router.add_api_route(path, refuse, methods=methods)


for _routes, _instead in ABSENT.items():
    for _route in _routes:
        _add(_route, _instead)
