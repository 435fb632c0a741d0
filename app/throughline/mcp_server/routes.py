"""The route of the MCP server: one JSON-RPC message in, its answer out.

Nothing is kept between requests, so that any process answers any of them.
"""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Request, Response

from throughline.domain.errors import InvalidInput, NotAuthenticated, NotFound, ThroughlineError
from throughline.http.body import read_json, validate
from throughline.http.call import Call, admit
from throughline.http.route_errors import PROBLEM_KINDS, InvalidRequest, MalformedBody
from throughline.mcp_server import protocol
from throughline.mcp_server.history import list_resources, list_templates, read_resource
from throughline.mcp_server.protocol import McpRequest, ProtocolError, RpcMessage, error_response, explain, rpc_response
from throughline.mcp_server.tasks import cancel_task, get_task, update_task
from throughline.mcp_server.tools import call_tool, list_tools
from throughline.wire.json_shape import JsonDict

INSTRUCTIONS = (
    "Agents with conversations that are kept for ever. ask_agent asks one, search_history and read_messages find what "
    "was said before."
)
META_SERVER = "io.modelcontextprotocol/serverInfo"
CAPABILITIES: JsonDict = {"tools": {}, "resources": {}}
CACHED_MILLISECONDS: Mapping[str, int] = {
    **dict.fromkeys(("server/discover", "tools/list", "resources/templates/list"), 60_000),
    **dict.fromkeys(("resources/list", "resources/read"), 0),
}
"""For how long a client may keep a result, by method: agent files may change while the service runs."""

Method: TypeAlias = Callable[[McpRequest], Awaitable[JsonDict]]


async def _initialize(asked: McpRequest) -> JsonDict:
    wanted, known = asked.text("protocolVersion"), protocol.WITH_HANDSHAKE
    revision = wanted if wanted in known else known[0]
    about: JsonDict = {"serverInfo": _server(asked), "instructions": INSTRUCTIONS}
    return {"protocolVersion": revision, "capabilities": CAPABILITIES, **about}


async def _discover(_asked: McpRequest) -> JsonDict:
    capabilities: JsonDict = {**CAPABILITIES, "extensions": {protocol.TASKS: {}}}
    return {"supportedVersions": [*protocol.REVISIONS], "capabilities": capabilities, "instructions": INSTRUCTIONS}


async def _ping(_asked: McpRequest) -> JsonDict:
    return {}


def _server(asked: McpRequest) -> JsonDict:
    return {"name": "throughline", "title": "Throughline", "version": asked.call.config.version}


SHARED_METHODS: Mapping[str, Method] = {
    "tools/list": list_tools,
    "tools/call": call_tool,
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
}
HANDSHAKE_METHODS: Mapping[str, Method] = {**SHARED_METHODS, "initialize": _initialize, "ping": _ping}
STATELESS_METHODS: Mapping[str, Method] = {
    **SHARED_METHODS,
    "server/discover": _discover,
    "tasks/get": get_task,
    "tasks/update": update_task,
    "tasks/cancel": cancel_task,
}


async def as_mcp_client(request: Request) -> Call:
    """Return a request of any key or access token as a `Call`: each method checks what it needs.

    Raises NotAuthenticated.
    """
    return await admit(request, None, ("GET", protocol.RUN))


router = APIRouter(include_in_schema=False)


@router.post("/mcp")
async def serve_mcp(request: Request, call: Annotated[Call, Depends(as_mcp_client)]) -> Response:
    """Answer a request of an MCP client. Notifications are accepted, and change nothing."""
    message_id, is_stateless = None, request.headers.get(protocol.VERSION_HEADER) not in protocol.WITH_HANDSHAKE
    try:
        body = await read_json(request)
        message_id = protocol.message_id_in(body)
        message = validate(body, RpcMessage)
        revision = protocol.revision_of(message, request.headers)
        if message.is_notification:
            return Response(status_code=HTTPStatus.ACCEPTED)
        is_stateless = revision == protocol.STATELESS
        return rpc_response(message_id, {"result": await _answer(McpRequest(message, revision, call, request))})
    except MalformedBody as error:
        refused = ProtocolError(protocol.PARSE_ERROR, error.detail)
    except InvalidRequest as error:
        refused = ProtocolError(protocol.INVALID_REQUEST, f"Send one JSON-RPC message. {explain(error)}")
    except ProtocolError as error:
        refused = error
    return error_response(message_id, refused, is_stateless=is_stateless)


async def _answer(asked: McpRequest) -> JsonDict:
    """Return the result of the request's method. Raises ProtocolError, NotAuthenticated."""
    method = (STATELESS_METHODS if asked.is_stateless else HANDSHAKE_METHODS).get(asked.message.method)
    if method is None:
        raise ProtocolError(protocol.METHOD_NOT_FOUND, "This server has no such method.")
    try:
        result = await method(asked)
    except NotAuthenticated:
        raise
    except ThroughlineError as error:
        raise _as_protocol_error(error) from error
    if not asked.is_stateless:
        return result
    kept = CACHED_MILLISECONDS.get(asked.message.method)
    hints: JsonDict = {} if kept is None else {"ttlMs": kept, "cacheScope": "private"}
    return {"resultType": "complete", **hints, **result, "_meta": {META_SERVER: _server(asked)}}


def _as_protocol_error(error: ThroughlineError) -> ProtocolError:
    is_of_params = isinstance(error, InvalidInput | InvalidRequest | NotFound)
    kind = PROBLEM_KINDS.get(error.code, PROBLEM_KINDS[ThroughlineError.code])
    data: JsonDict = {"type": f"/problems/{error.code}", "status": kind.status}
    return ProtocolError(protocol.INVALID_PARAMS if is_of_params else protocol.SERVER_ERROR, explain(error), data)
