"""The route of the MCP server: one JSON-RPC message in, its answer out.

Nothing is kept between requests, so that any process answers any of them.
"""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Request, Response

from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import InvalidInput, NotAuthenticated, NotFound, ThroughlineError
from throughline.http.body import read_json
from throughline.http.call import Call, admit
from throughline.http.route_errors import PROBLEM_KINDS, InvalidRequest, MalformedBody
from throughline.mcp import protocol, resources, tasks, tools
from throughline.mcp.protocol import ProtocolError, RpcMessage, error_response, result_response
from throughline.mcp.request import RUN, McpRequest
from throughline.wire.json_shape import JsonDict

PATH = "/mcp"
INSTRUCTIONS = (
    "Agents with conversations that are kept for ever. ask_agent asks one, search_history and read_messages find what "
    "was said before."
)
CACHE: JsonDict = {"ttlMs": 60_000, "cacheScope": "private"}
"""For how long a client may keep a list: agent files may change while the service runs."""

NO_CACHE: JsonDict = {"ttlMs": 0, "cacheScope": "private"}
CACHED: Mapping[str, JsonDict] = {
    "server/discover": CACHE,
    "tools/list": CACHE,
    "resources/templates/list": CACHE,
    "resources/list": NO_CACHE,
    "resources/read": NO_CACHE,
}
"""The hints for caches, by method."""

Method: TypeAlias = Callable[[McpRequest], Awaitable[JsonDict]]


async def _initialize(asked: McpRequest) -> JsonDict:
    wanted = asked.message.params.get("protocolVersion")
    if not isinstance(wanted, str):
        raise ProtocolError(protocol.INVALID_PARAMS, "`protocolVersion` is missing, or no text.")
    revision = wanted if wanted in protocol.WITH_HANDSHAKE else protocol.WITH_HANDSHAKE[0]
    capabilities: JsonDict = {"tools": {}, "resources": {}}
    return {"protocolVersion": revision, "capabilities": capabilities, "serverInfo": _server(asked), **_instructions()}


async def _discover(_asked: McpRequest) -> JsonDict:
    capabilities: JsonDict = {"tools": {}, "resources": {}, "extensions": {protocol.TASKS: {}}}
    return {"supportedVersions": list(protocol.REVISIONS), "capabilities": capabilities, **_instructions()}


async def _ping(_asked: McpRequest) -> JsonDict:
    return {}


def _server(asked: McpRequest) -> JsonDict:
    return {"name": "throughline", "title": "Throughline", "version": asked.call.config.version}


def _instructions() -> JsonDict:
    return {"instructions": INSTRUCTIONS}


IN_ALL: Mapping[str, Method] = {
    "tools/list": tools.list_tools,
    "tools/call": tools.call_tool,
    "resources/list": resources.list_resources,
    "resources/templates/list": resources.list_templates,
    "resources/read": resources.read_resource,
}
HANDSHAKE_METHODS: Mapping[str, Method] = {**IN_ALL, "initialize": _initialize, "ping": _ping}
STATELESS_METHODS: Mapping[str, Method] = {
    **IN_ALL,
    "server/discover": _discover,
    "tasks/get": tasks.get_task,
    "tasks/update": tasks.update_task,
    "tasks/cancel": tasks.cancel_task,
}


async def as_mcp_client(request: Request) -> Call:
    """Return a request of any key or access token as a `Call`: each method checks what it needs.

    Raises NotAuthenticated.
    """
    return await admit(request, None, ("GET", RUN))


McpClient: TypeAlias = Annotated[Call, Depends(as_mcp_client)]
router = APIRouter(include_in_schema=False)


@router.post(PATH)
async def serve_mcp(request: Request, call: McpClient) -> Response:
    """Answer a request of an MCP client. Notifications are accepted, and change nothing."""
    message_id, is_stateless = None, request.headers.get(protocol.VERSION_HEADER) not in protocol.WITH_HANDSHAKE
    try:
        body = await _read_body(request)
        message_id = protocol.message_id_in(body)
        message = protocol.read_message(body, request.headers)
        is_stateless = message.is_stateless
        if message.id is None:
            return Response(status_code=HTTPStatus.ACCEPTED)
        return result_response(message, await _answer(McpRequest(message, call, request)))
    except ProtocolError as error:
        return error_response(message_id, error, is_stateless=is_stateless)


async def _read_body(request: Request) -> JsonValue:
    try:
        return await read_json(request)
    except MalformedBody as error:
        raise ProtocolError(protocol.PARSE_ERROR, error.detail) from error
    except InvalidRequest as error:
        raise ProtocolError(protocol.INVALID_REQUEST, error.detail) from error


async def _answer(asked: McpRequest) -> JsonDict:
    """Return the result of the request's method. Raises ProtocolError, NotAuthenticated."""
    message = asked.message
    method = (STATELESS_METHODS if message.is_stateless else HANDSHAKE_METHODS).get(message.method)
    if method is None:
        raise ProtocolError(protocol.METHOD_NOT_FOUND, "This server has no such method.")
    try:
        result = await method(asked)
    except NotAuthenticated:
        raise
    except ThroughlineError as error:
        raise _as_protocol_error(error) from error
    return _with_words_of(message, asked, result)


def _as_protocol_error(error: ThroughlineError) -> ProtocolError:
    is_of_params = isinstance(error, InvalidInput | InvalidRequest | NotFound)
    kind = PROBLEM_KINDS.get(error.code, PROBLEM_KINDS[ThroughlineError.code])
    data: JsonDict = {"type": f"/problems/{error.code}", "status": kind.status}
    return ProtocolError(protocol.INVALID_PARAMS if is_of_params else protocol.SERVER_ERROR, error.detail, data)


def _with_words_of(message: RpcMessage, asked: McpRequest, result: JsonDict) -> JsonDict:
    """Return the result with what its revision adds to all results."""
    if not message.is_stateless:
        return result
    meta: JsonDict = {"io.modelcontextprotocol/serverInfo": _server(asked)}
    return {"resultType": "complete", **CACHED.get(message.method, {}), **result, "_meta": meta}
