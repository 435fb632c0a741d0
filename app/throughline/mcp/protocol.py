"""Messages of MCP over HTTP: their envelope and headers in both kinds of revisions, and errors as JSON-RPC.

Revision 2026-07-28 has no handshake: each request names its revision and the client's capabilities in `_meta`, and
repeats method and name in headers. Clients of the 2025 revisions begin with `initialize`. No client has a session.
Specification: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports .
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias

from fastapi import Response
from starlette.datastructures import Headers

from throughline.domain.basic_types import JsonValue
from throughline.domain.message import clean_text
from throughline.http.problem_documents import JsonResponse
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
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter that the header Mcp-Name repeats, by method."""

MAX_SHOWN = 100
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
SERVER_ERROR, RESOURCE_NOT_FOUND = -32000, -32002
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
STATUSES: Mapping[int, int] = {METHOD_NOT_FOUND: HTTPStatus.NOT_FOUND, SERVER_ERROR: HTTPStatus.OK}
"""HTTP status of an answer to a stateless request, by the code of its error; every other one has the status 400."""

REFUSED = (PARSE_ERROR, INVALID_REQUEST, HEADER_MISMATCH, UNSUPPORTED_VERSION)
"""Errors for which revisions with a handshake have the status 400; every other one is answered with 200."""

MessageId: TypeAlias = str | int | None


class ProtocolError(Exception):
    """Error that is answered as a JSON-RPC error: a message that breaks the protocol, or a method that cannot do it."""

    def __init__(self, code: int, text: str, data: JsonDict | None = None) -> None:
        """Keep the code, the sentence for the client's reader, and further values."""
        super().__init__(text)
        self.code = code
        self.text = text
        self.data = data


@dataclass(frozen=True, slots=True)
class RpcMessage:
    """A message of a client. `id` is None for a notification, `capabilities` is what it says of the client."""

    id: MessageId
    method: str
    params: JsonDict
    revision: str
    capabilities: Mapping[str, JsonValue]

    @property
    def is_stateless(self) -> bool:
        """Whether the message is of a revision without handshake."""
        return self.revision == STATELESS

    @property
    def takes_tasks(self) -> bool:
        """Whether the client has declared that it follows tasks."""
        extensions = self.capabilities.get("extensions")
        return isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)


def message_id_in(body: JsonValue) -> MessageId:
    """Return the id of a message that may be malformed, None if it has no usable one."""
    found = body.get("id") if isinstance(body, dict) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def read_message(body: JsonValue, headers: Headers) -> RpcMessage:
    """Return the message. Raises ProtocolError unless it is one request or notification that can be served."""
    method, params = _read_envelope(body)
    if repeated := next(
        (name for name in (VERSION_HEADER, METHOD_HEADER, NAME_HEADER) if _count(headers, name) > 1), ""
    ):
        raise ProtocolError(HEADER_MISMATCH, f"The header {repeated} is sent twice. Send it once.")
    meta, header = params.get("_meta"), headers.get(VERSION_HEADER)
    named = meta.get(META_REVISION) if isinstance(meta, dict) else None
    if named is None and header is not None:
        _check_revision(header)
    message_id = message_id_in(body)
    if named is None and header != STATELESS:
        return RpcMessage(message_id, method, params, header or WITH_HANDSHAKE[-1], {})
    capabilities = {} if message_id is None else _read_meta(meta)
    if message_id is not None:
        _check_headers(headers, method, params, named)
    _check_revision(named or STATELESS)
    return RpcMessage(message_id, method, params, STATELESS, capabilities)


def _read_envelope(body: JsonValue) -> tuple[str, JsonDict]:
    if isinstance(body, list):
        raise ProtocolError(INVALID_REQUEST, "The body is a batch. Send one JSON-RPC message for each request.")
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, 'The body must be a JSON-RPC message: an object with "jsonrpc": "2.0".')
    method, params = body.get("method"), body.get("params", {})
    if not isinstance(method, str) or ("id" in body and message_id_in(body) is None):
        raise ProtocolError(
            INVALID_REQUEST, "The message must be a request or a notification: `method` is text, `id` text or a number."
        )
    if not isinstance(params, dict):
        raise ProtocolError(INVALID_PARAMS, "`params` must be an object.")
    return method, params


def _count(headers: Headers, name: str) -> int:
    return len(headers.getlist(name))


def _read_meta(meta: JsonValue) -> Mapping[str, JsonValue]:
    """Return the client's capabilities. Raises ProtocolError if the request does not say what each one has to."""
    found = meta if isinstance(meta, dict) else {}
    if lacking := [name for name in (META_REVISION, META_CAPABILITIES) if name not in found]:
        raise ProtocolError(INVALID_PARAMS, f"`params._meta` lacks {' and '.join(lacking)}.")
    capabilities = found[META_CAPABILITIES]
    if not isinstance(capabilities, dict):
        raise ProtocolError(INVALID_PARAMS, f"`params._meta.{META_CAPABILITIES}` must be an object.")
    return capabilities


def _check_headers(headers: Headers, method: str, params: JsonDict, named: JsonValue) -> None:
    """Raise ProtocolError unless the headers repeat what the body says. Proxies read only the headers."""
    key = NAMED_BY.get(method)
    wanted = [(VERSION_HEADER, named), (METHOD_HEADER, method)]
    if key is not None and params.get(key) is not None:
        wanted.append((NAME_HEADER, params[key]))
    for name, value in wanted:
        sent = headers.get(name, "").strip()
        if (_decode(sent) if name == NAME_HEADER else sent) != value:
            raise ProtocolError(HEADER_MISMATCH, f"The header {name} is missing, or differs from the body.")


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


def _check_revision(revision: JsonValue) -> None:
    if revision not in REVISIONS:
        shown = clean_text(str(revision))[:MAX_SHOWN]
        raise ProtocolError(
            UNSUPPORTED_VERSION,
            f"This server does not speak revision {shown}.",
            {"supported": list(REVISIONS), "requested": shown},
        )


def result_response(message: RpcMessage, result: JsonDict) -> Response:
    """Return the answer with a result."""
    return JsonResponse({"jsonrpc": "2.0", "id": message.id, "result": result})


def error_response(message_id: MessageId, error: ProtocolError, *, is_stateless: bool) -> Response:
    """Return the answer with an error, with the HTTP status that the client's revision has for it."""
    shown: JsonDict = {"code": error.code, "message": error.text}
    if error.data is not None:
        shown["data"] = error.data
    if is_stateless:
        status = STATUSES.get(error.code, HTTPStatus.BAD_REQUEST)
    else:
        status = HTTPStatus.BAD_REQUEST if error.code in REFUSED else HTTPStatus.OK
    return JsonResponse({"jsonrpc": "2.0", "id": message_id, "error": shown}, status)
