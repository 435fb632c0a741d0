"""Messages of MCP over HTTP: envelope and headers in both kinds of revisions, requests, results, and errors.

Revision 2026-07-28 has no handshake: each request names its revision and the client's capabilities in `_meta`, and
repeats method and name in headers. Clients of the 2025 revisions begin with `initialize`. No client has a session.
Specification: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports .
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, TypeAlias

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.datastructures import Headers

from throughline.domain.errors import InvalidInput, ThroughlineError
from throughline.domain.keys import Scope
from throughline.domain.message import clean_text
from throughline.domain.run import Run
from throughline.http.call import Call, admit_as
from throughline.http.problem_documents import JsonResponse
from throughline.http.route_errors import FieldError, InvalidRequest
from throughline.wire.json_shape import JsonDict

STATELESS = "2026-07-28"
WITH_HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Revisions in which a client begins with `initialize`, the newest first; the last one names no revision in headers."""

REVISIONS = (STATELESS, *WITH_HANDSHAKE)
META_REVISION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TASKS = "io.modelcontextprotocol/tasks"
"""Extension of revision 2026-07-28 with which a long call becomes a task, which here is a run."""

VERSION_HEADER, METHOD_HEADER, NAME_HEADER = "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"
NAMED_BY: Mapping[str, str] = {
    **dict.fromkeys(("tools/call", "prompts/get"), "name"),
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
    "resources/read": "uri",
}
"""The parameter that the header Mcp-Name repeats, by method."""

RUN = "/v1/runs/{run_id}"
SESSION = "/v1/sessions/{session_id}"

MAX_SHOWN = 100
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
SERVER_ERROR, RESOURCE_NOT_FOUND = -32000, -32002
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
STATUSES: Mapping[int, int] = {METHOD_NOT_FOUND: HTTPStatus.NOT_FOUND, SERVER_ERROR: HTTPStatus.OK}
"""HTTP status of an answer to a stateless request, by the code of its error; every other one has the status 400."""

BAD_REQUEST_CODES = (PARSE_ERROR, INVALID_REQUEST, HEADER_MISMATCH, UNSUPPORTED_VERSION)
"""Errors for which revisions with a handshake have the status 400; every other one is answered with 200."""

MessageId: TypeAlias = str | int | None


class ProtocolError(Exception):
    """Error that is answered as a JSON-RPC error: a message that breaks the protocol, or a method that cannot do it."""

    def __init__(self, code: int, text: str, data: JsonDict | None = None) -> None:
        """Keep the code, the sentence for the client's reader, and further values."""
        super().__init__(text)
        self.json: JsonDict = {"code": code, "message": text, **({} if data is None else {"data": data})}
        self.code = code


class RpcMessage(BaseModel):
    """A JSON-RPC message of a client: a request, or a notification if it has no id."""

    model_config = ConfigDict(strict=True, frozen=True)

    jsonrpc: Literal["2.0"]
    id: str | int = ""
    method: str
    params: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def is_notification(self) -> bool:
        """Whether the message is not answered."""
        return "id" not in self.model_fields_set

    @property
    def meta(self) -> JsonDict:
        """What the message says of its client."""
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}


def message_id_in(body: JsonValue) -> MessageId:
    """Return the id of a message that may be malformed, None if it has no usable one."""
    found = body.get("id") if isinstance(body, dict) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def revision_of(message: RpcMessage, headers: Headers) -> str:
    """Return the revision of the message. Raises ProtocolError unless a message like it can be served."""
    for name in (VERSION_HEADER, METHOD_HEADER, NAME_HEADER):
        if len(headers.getlist(name)) > 1:
            raise ProtocolError(HEADER_MISMATCH, f"The header {name} is sent twice. Send it once.")
    header, named = headers.get(VERSION_HEADER, WITH_HANDSHAKE[-1]), message.meta.get(META_REVISION)
    if named is None and header != STATELESS:
        return _check_revision(header)
    if not message.is_notification:
        if named is None or not isinstance(message.meta.get(META_CAPABILITIES), dict):
            wanted = f"the text {META_REVISION} and the object {META_CAPABILITIES}"
            raise ProtocolError(INVALID_PARAMS, f"Each request needs, in `params._meta`, {wanted}.")
        _check_headers(message, named, headers)
    _check_revision(named or STATELESS)
    return STATELESS


def _check_headers(message: RpcMessage, revision: JsonValue, headers: Headers) -> None:
    """Raise ProtocolError unless the headers repeat what the body says. Proxies read only the headers."""
    wanted: list[tuple[str, JsonValue]] = [(VERSION_HEADER, revision), (METHOD_HEADER, message.method)]
    if (name := message.params.get(NAMED_BY.get(message.method, ""))) is not None:
        wanted.append((NAME_HEADER, name))
    for header, value in wanted:
        text = headers.get(header, "").strip()
        if (_decode(text) if header == NAME_HEADER else text) != value:
            raise ProtocolError(HEADER_MISMATCH, f"The header {header} is missing, or differs from the body.")


def _decode(value: str) -> str | None:
    """Return the text of a header, which clients send as `=?base64?…?=` if a header cannot carry it; None if broken."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    encoded = value.removeprefix("=?base64?").removesuffix("?=")
    try:
        decoded = base64.b64decode(encoded, validate=True)
        return decoded.decode() if base64.b64encode(decoded).decode() == encoded else None
    except (binascii.Error, ValueError):
        return None


def _check_revision(revision: JsonValue) -> str:
    """Return the revision. Raises ProtocolError, which names those that are served, unless it is one of them."""
    shown = clean_text(str(revision))[:MAX_SHOWN]
    if revision not in REVISIONS:
        supported: JsonDict = {"supported": list(REVISIONS), "requested": shown}
        raise ProtocolError(UNSUPPORTED_VERSION, f"This server does not support revision {shown}.", supported)
    return shown


@dataclass(frozen=True, slots=True)
class McpRequest:
    """A request: the message and its revision, the admitted caller, and the HTTP request that brought it."""

    message: RpcMessage
    revision: str
    call: Call
    request: Request

    @property
    def is_stateless(self) -> bool:
        """Whether the message is of a revision without handshake."""
        return self.revision == STATELESS

    @property
    def takes_tasks(self) -> bool:
        """Whether the client has declared that it follows tasks."""
        capabilities = self.message.meta.get(META_CAPABILITIES) if self.is_stateless else None
        extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
        return isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)

    async def authorize(self, scope: Scope, method: str, path: str, **ids: str) -> Call:
        """Return the call with the rights that this route of the REST interface needs. Raises NotAllowed, NotFound."""
        return await admit_as(self.request, self.call, scope, (method, path), ids)

    async def authorize_run(self, run_id: str) -> Call:
        """Return the call as one that reads the run."""
        return await self.authorize(Scope.READ, "GET", RUN, run_id=run_id)

    async def authorize_session(self, session_id: str, part: str) -> Call:
        """Return the call as one that reads this part of the session."""
        return await self.authorize(Scope.READ, "GET", f"{SESSION}{part}", session_id=session_id)

    def text(self, name: str) -> str:
        """Return a parameter of the method. Raises ProtocolError unless it is text."""
        value = self.message.params.get(name)
        if not isinstance(value, str):
            raise ProtocolError(INVALID_PARAMS, f"{name}: Must be text.")
        return value


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool: values in the shape of its output schema, and texts for a model.

    `unfinished` is a run that the call asked for and that goes on: a client with tasks is given a task for it.
    """

    values: JsonDict | None
    texts: tuple[str, ...]
    is_error: bool = False
    unfinished: Run | None = None

    def render(self) -> JsonDict:
        """Return the members of a CallToolResult."""
        shown: JsonDict = {"content": [{"type": "text", "text": text} for text in self.texts], "isError": self.is_error}
        return shown if self.values is None else {**shown, "structuredContent": self.values}


def explain(error: ThroughlineError) -> str:
    """Return the text that the REST interface has for an error, with the names of all wrong values."""
    match error:
        case InvalidRequest(errors=errors):
            found = errors
        case InvalidInput(field=field):
            found = (FieldError(field, error.detail),)
        case _:
            return error.detail
    return " ".join(f"{one.field}: {one.detail}" if one.field else one.detail for one in found)


def rpc_response(message_id: MessageId, part: JsonDict, status: int = HTTPStatus.OK) -> Response:
    """Return the answer to a message; `part` is its `result` or its `error`."""
    return JsonResponse({"jsonrpc": "2.0", "id": message_id, **part}, status)


def error_response(message_id: MessageId, error: ProtocolError, *, is_stateless: bool) -> Response:
    """Return the answer with an error, with the HTTP status that the client's revision has for it."""
    if is_stateless:
        status = STATUSES.get(error.code, HTTPStatus.BAD_REQUEST)
    else:
        status = HTTPStatus.BAD_REQUEST if error.code in BAD_REQUEST_CODES else HTTPStatus.OK
    return rpc_response(message_id, {"error": error.json}, status)
