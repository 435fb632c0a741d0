"""Transport to a server at an address. Only this address is called: redirects are not followed, proxies not used.

A response that fails, or is refused here, becomes an error of its request alone: the SDK would end the connection with
all other requests.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import httpx2
from mcp.client import Transport
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client

from throughline.domain.tool_server import ToolServer
from throughline.tools.mcp_client.bounds import Bounds
from throughline.tools.mcp_client.oauth import AuthorizedTransport, TokenRefused, TokenSource

TIMEOUT = httpx2.Timeout(30.0, connect=10.0, pool=10.0, read=300.0)
"""Seconds; the time of a call is limited by its caller, and a stream of events may be silent."""

LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=5)
EVENT_STREAM = "text/event-stream"
MESSAGES_OF_STREAM = 4
"""A stream of events may be this many times as long as one message."""

PAUSE_BYTES = 65_536
PAUSE_SECONDS = 0.05
INTERNAL_ERROR = -32603
BAD_GATEWAY = 502
NOT_FOUND = 404
FIRST_REFUSAL = 400
STATUSES_OF_PROTOCOL = frozenset({400, 404, 405, 406})
"""Statuses that the SDK handles itself: for revisions and ended sessions."""


@asynccontextmanager
async def address_transport(
    server: ToolServer,
    headers: Mapping[str, str],
    tokens: TokenSource | None,
    bounds: Bounds,
    report: Callable[[str], None],
) -> AsyncGenerator[Transport]:
    """Yield the transport of the messages to and from the server. Raises TokenRefused if it needs one and has none.

    `report` is called with the reason when the server has ended the session, so that a new one is needed.
    """
    inner: httpx2.AsyncBaseTransport = httpx2.AsyncHTTPTransport(limits=LIMITS, trust_env=False)
    if tokens is not None:
        await tokens.token()
        inner = AuthorizedTransport(inner, tokens)
    transport = _Bounded(inner, bounds, report)
    async with httpx2.AsyncClient(
        transport=transport, headers=dict(headers), timeout=TIMEOUT, trust_env=False
    ) as client:
        yield streamable_http_client(server.url, http_client=client, max_sse_event_size=bounds.message_bytes)


class _Bounded(httpx2.AsyncBaseTransport):
    """HTTP transport whose responses are limited and whose failures are responses too."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, bounds: Bounds, report: Callable[[str], None]) -> None:
        self._inner = inner
        self._bounds = bounds
        self._report = report

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"  # a few compressed bytes may expand to any number
        if request.method == "GET":  # a stream that ends is opened again, and may end again at once
            await asyncio.sleep(PAUSE_SECONDS)
        try:
            response = await self._inner.handle_async_request(request)
        except TokenRefused as error:
            return _error_response(str(error))
        except httpx2.TransportError as error:
            return _error_response(f"the server cannot be reached ({type(error).__name__})")
        problem = _problem(response)
        if problem:
            await response.aclose()
            return _error_response(problem)
        if response.status_code == NOT_FOUND and MCP_SESSION_ID in request.headers:
            self._report("the server ended the session")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        is_events = response.headers.get("content-type", "").lower().startswith(EVENT_STREAM)
        most = self._bounds.message_bytes * (MESSAGES_OF_STREAM if is_events else 1)
        response.stream = _BoundedStream(response.stream, most, is_paced=is_events)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _problem(response: httpx2.Response) -> str:
    """Return why the response is not used, '' if it is."""
    status = response.status_code
    if response.has_redirect_location:
        return f"the server redirects ({status}), which is not followed: set its new address as `url`"
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        return "the server compressed its answer, though asked not to"
    is_json = response.headers.get("content-type", "").lower().startswith("application/json")
    if status >= FIRST_REFUSAL and status not in STATUSES_OF_PROTOCOL and not is_json:
        return f"the server answered with the status {status}"
    return ""


def _error_response(text: str) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": text}}
    return httpx2.Response(BAD_GATEWAY, json=error)


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of a response, which fails in the way that the SDK expects if it is too long or breaks off."""

    def __init__(self, stream: httpx2.AsyncByteStream, most_bytes: int, *, is_paced: bool) -> None:
        self._stream = stream
        self._most_bytes = most_bytes
        self._is_paced = is_paced

    async def __aiter__(self) -> AsyncIterator[bytes]:
        whole = since = 0
        try:
            async for piece in self._stream:
                whole += len(piece)
                since += len(piece)
                if whole > self._most_bytes:
                    raise httpx2.StreamError(f"the answer has more than {self._most_bytes:,} bytes")
                if self._is_paced and since >= PAUSE_BYTES:
                    since = 0
                    await asyncio.sleep(PAUSE_SECONDS)
                yield piece
        except httpx2.TransportError as error:
            raise httpx2.StreamError(f"the answer broke off ({type(error).__name__})") from error

    async def aclose(self) -> None:
        await self._stream.aclose()
