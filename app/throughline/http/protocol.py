"""HTTP/1.1 protocol class that limits each connection: times, bytes outside of bodies, and pipelined requests.

It also limits the number of connections. Without limits, a silent or slow client would keep its connection for ever,
and endless headers, trailers or requests would fill the memory. `http/server.py` hands the class to uvicorn, which
does the rest of HTTP.

When the server stops, a request that is on its way is answered: see `LimitedProtocol.shutdown`.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httptools
from fastapi import Response
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from throughline.domain.errors import ThroughlineError
from throughline.http.problem_documents import error_problem
from throughline.http.route_errors import HeadTooLarge, HeadTooSlow, MalformedRequest, ServiceStopping

# WebSocket connections: which requests become one, and two cases that uvicorn's protocol does not close. Each is
# limited further: `ConnectionLimits.max_message_bytes`, and one message in memory until it is taken.

WEBSOCKET_PATH = b"/v1/responses"
MAX_HEADERS = 100
MAX_LINE_BYTES = 8_000
"""Most headers, and the longest line of a header, with which a request may become a WebSocket.

The library that reads such heads stops at 128 headers and lines of 8,192 bytes.
"""

OF_BODIES = frozenset({b"content-length", b"transfer-encoding"})
"""Headers of requests with a body, which that library does not read."""


def is_websocket_request(method: bytes, url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether an upgrade request becomes a WebSocket: a GET of WEBSOCKET_PATH within the limits of headers.

    Any other is served as plain HTTP.
    """
    is_small = len(headers) <= MAX_HEADERS and all(len(name) + len(value) < MAX_LINE_BYTES for name, value in headers)
    has_body = any(name in OF_BODIES for name, _ in headers)
    return method == b"GET" and url == WEBSOCKET_PATH and is_small and not has_body


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket connection, which ends at once if it cannot be read, or if its client does not answer."""

    def keepalive_timeout(self) -> None:
        """Cut the connection of a client that has answered no ping: it would not read a close frame."""
        super().keepalive_timeout()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read received data. Cut a connection whose head is no WebSocket's: uvicorn would leave it open for ever."""
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.abort()

    def handle_parser_exception(self) -> None:
        """Cut a connection whose handshake cannot be read, for which uvicorn has no answer."""
        if self.conn.close_sent is None:
            self.transport.abort()
        else:
            super().handle_parser_exception()


BEYOND_LIMIT = "is_beyond_limit"
PIECE_BYTES = 16_384
"""Size in bytes of the pieces in which received data is parsed. Limits are checked between two pieces.

uvloop delivers up to 256 kB at once.
"""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits for the connections of an HTTP server.

    - A request head must arrive within `head_seconds` of the connection or of the head's first byte, with at most
      `max_head_bytes` and `max_headers`. `max_head_bytes` also limits a body's chunk extensions and trailers.
    - If a request is answered before its body is complete, the rest of the body may take `rest_seconds` and
      `max_rest_bytes`.
    - At most `max_requests_in_line` pipelined requests may wait behind a request that is being answered.
    - A client that reads nothing of a response for `write_seconds` is disconnected.
    - Connections beyond `max_connections` get a refusal, or the health and metrics routes. Connections beyond
      `reserve` more are closed at once.
    - A message of a WebSocket has at most `max_message_bytes`.
    - A connection without a request stays open for `linger_seconds` when the server stops: a request may be on its way.
    """

    max_connections: int = 5_000
    reserve: int = 100
    head_seconds: float = 15.0
    rest_seconds: float = 15.0
    write_seconds: float = 60.0
    max_head_bytes: int = 65_536
    max_headers: int = 256
    max_rest_bytes: int = 64_000_000
    max_requests_in_line: int = 32
    max_message_bytes: int = 2_000_000
    linger_seconds: float = 1.0


class _ParsingStopped(Exception):
    """Raised in a parser callback to stop parsing the connection."""


class LimitedProtocol(HttpToolsProtocol):
    """One HTTP connection with limits.

    At most one deadline is active at a time: for a request head, or for the rest of an answered request's body.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        is_stopping: Callable[[], bool],
        *,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # Any: as uvicorn has it
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Create a connection of a server that may be stopping. uvicorn passes the arguments that are named."""
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._is_stopping = is_stopping
        self._deadline: asyncio.TimerHandle | None = None
        self._is_in_head = True
        self._framing_bytes = 0
        self._rest_bytes = 0
        self._refusal: ThroughlineError = MalformedRequest("This is not an HTTP/1.1 request. Check the client.")
        self._is_done_reading = False
        self._cycle_before: RequestResponseCycle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the connection. Beyond the limits, mark it to be refused or close it at once."""
        super().connection_made(transport)
        number = len(self.connections)
        if number > self._limits.max_connections + self._limits.reserve:
            transport.abort()
            return
        if number > self._limits.max_connections:
            self.app_state = {**self.app_state, BEYOND_LIMIT: True}
        self._set_deadline(self._head_is_late, self._limits.head_seconds)
        if self._is_stopping():
            self._linger()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        for timer in (self._writing, self._lingering):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End the connection after the next response, or once no request has come for `linger_seconds`.

        uvicorn, which calls this when the server stops, would close a connection whose request it has not read yet. It
        would also close one without notice after a response whose head has been sent.
        """
        if self._is_answering() and not self.cycle.response_started:
            self.cycle.keep_alive = False
        else:
            self._linger()

    def _linger(self) -> None:
        """Close the connection after `linger_seconds`, unless a request has begun by then."""
        if self._lingering is not None:
            self._lingering.cancel()
        self._lingering = self.loop.call_later(self._limits.linger_seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        has_head = self._is_in_head and self._framing_bytes > 0
        if not (has_head or self._is_answering() or self._is_answered_early()):
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Parse the received data in pieces, so that each limit is checked before much more is parsed."""
        for start in range(0, len(data), PIECE_BYTES):
            if not (self._is_done_reading or self.transport.is_closing()):
                self._parse(data[start : start + PIECE_BYTES])

    def _parse(self, data: bytes) -> None:
        self._data = data
        super().data_received(data)
        if self._is_done_reading:
            return
        self._framing_bytes += len(data)
        if self._deadline is None and not self._is_answering() and not self._is_in_head:
            self._set_deadline(self._head_is_late, self._limits.head_seconds)  # blank lines stop uvicorn's own timer
        if self._framing_bytes > self._limits.max_head_bytes:
            self._refuse(_head_too_large(f"{self._limits.max_head_bytes} bytes"))
        if self._is_answered_early():
            self._rest_bytes += len(data)
            if self._rest_bytes > self._limits.max_rest_bytes:
                self.transport.close()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's own text is not sent
        """Refuse a request that the parser could not read or at which parsing was stopped. Called by uvicorn."""
        self._refuse(self._refusal)

    def on_message_begin(self) -> None:
        """Begin a request head and its deadline. Stop parsing if too many pipelined requests wait."""
        if len(self.pipeline) >= self._limits.max_requests_in_line:
            raise _ParsingStopped
        super().on_message_begin()
        self._is_in_head, self._framing_bytes, self._rest_bytes = True, 0, 0
        if self._deadline is None:
            self._set_deadline(self._head_is_late, self._limits.head_seconds)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header of the head. Trailers are dropped, because nothing reads them."""
        if not self._is_in_head:
            return
        super().on_header(name, value)
        if len(self.headers) > self._limits.max_headers:
            self._refusal = _head_too_large(f"{self._limits.max_headers} headers")
            raise _ParsingStopped

    def on_headers_complete(self) -> None:
        """Stop the head's deadline and begin the request."""
        self._is_in_head = False
        self._count_from_here()
        self._clear_deadline()
        if self._should_upgrade() or not self._asks_for_another_protocol():
            self._cycle_before = self.cycle
            super().on_headers_complete()
            if self._is_stopping() and not self._should_upgrade():
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of a body. Its bytes do not count towards `max_head_bytes`."""
        self._count_from_here()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the deadline for the rest of the body. The request may have been answered before."""
        if not self._asks_for_another_protocol():
            self._clear_deadline()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the deadline for the rest of the body if the request was answered before its body was complete."""
        super().on_response_complete()
        if self._is_answered_early() and not self.transport.is_closing():
            self._set_deadline(self.transport.close, self._limits.rest_seconds)
        if self._is_stopping() and not self.transport.is_closing():
            self._linger()

    def _count_from_here(self) -> None:
        """Restart the count of bytes outside of bodies.

        The count starts at minus the size of the current piece, because `_parse` adds that size afterwards.
        """
        self._framing_bytes = -len(self._data)

    def _is_answered_early(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete and self.cycle.more_body  # type: ignore[redundant-expr]  # None at first

    def pause_writing(self) -> None:
        """Start checking that the client reads. Called when the write buffer is full."""
        super().pause_writing()
        if self._writing is None:
            self._watch_writing(0)

    def _watch_writing(self, left_before: int) -> None:
        """Disconnect a client that has read nothing since the last check. Checks end once the buffer is empty."""
        left = self.transport.get_write_buffer_size()
        if left and left == left_before:
            self.transport.abort()
        self._writing = self.loop.call_later(self._limits.write_seconds, self._watch_writing, left) if left else None

    def _should_upgrade(self) -> bool:
        """Return whether the request becomes a WebSocket. It does not while an earlier one is being answered."""
        return (
            super()._should_upgrade()
            and is_websocket_request(self.parser.get_method(), self.url, self.headers)
            and not (self._is_answering() or self.app_state.get(BEYOND_LIMIT))
        )

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket's own protocol. Called by uvicorn."""
        if self._is_stopping():
            self._refuse(ServiceStopping("The service is stopping. Connect again."))
            return
        self._clear_deadline()
        self._is_done_reading = True
        super().handle_websocket_upgrade()

    def _asks_for_another_protocol(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _unsupported_upgrade_warning(self) -> None:
        """Parse a request for a protocol upgrade again, without its `Upgrade` header.

        uvicorn calls this when the parser has stopped behind such a head, as if no body could follow.
        """
        stopped = sys.exception()
        if not (isinstance(stopped, httptools.HttpParserUpgrade) and self._asks_for_another_protocol()):
            return
        headers = b"".join(b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade")
        head = b"%s %s HTTP/1.1\r\n%s\r\n" % (self.parser.get_method(), self.url, headers)
        rest = self._data[stopped.args[0] :]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self.data_received(head + rest)

    def _set_deadline(self, otherwise: Callable[[], None], seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, otherwise)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_is_late(self) -> None:
        if self._is_answering():  # an earlier request is being answered
            self._set_deadline(self._head_is_late, self._limits.head_seconds)
        elif self._framing_bytes:
            seconds = self._limits.head_seconds
            self._refuse(
                HeadTooSlow(f"The request line and headers did not arrive within {seconds:g} seconds. Send it again.")
            )
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]  # None at first

    def _refuse(self, error: ThroughlineError) -> None:
        """Close the connection, if possible after sending `error`.

        A request that has arrived completely is answered first, and `error` is not sent. Nor is it sent if another
        response is being written, or if the refused request was answered before its body was complete.
        """
        self._clear_deadline()
        if self.transport.is_closing():
            return
        self._drop_incomplete_request()
        if self._is_answering() and not self.cycle.more_body:
            self.cycle.keep_alive, self._is_done_reading = False, True
            self.flow.pause_reading()
            return
        if self._is_answering():
            self.cycle.disconnected = True
            can_be_answered = not self.cycle.response_started
        else:
            can_be_answered = not self._is_answered_early()
        if can_be_answered:
            self.transport.write(_on_the_wire(error_problem(error)))
        self.transport.close()

    def _drop_incomplete_request(self) -> None:
        """Drop the newest pipelined request if its body is incomplete and it waits behind others.

        The connection is being refused, so the rest of that body is not read. Earlier requests are still answered.
        """
        if self._is_answering() and self.cycle.more_body and self.pipeline:
            assert self._cycle_before is not None
            self.pipeline.popleft()
            self.cycle = self._cycle_before


def _head_too_large(most: str) -> HeadTooLarge:
    return HeadTooLarge(
        f"The request has more than {most} outside its body. Send fewer or shorter headers, trailers and extensions."
    )


def _on_the_wire(response: Response) -> bytes:
    headers = [(name, value) for name, value in response.raw_headers if name != b"connection"]
    lines = b"".join(b"%s: %s\r\n" % header for header in (*headers, (b"connection", b"close")))
    return STATUS_LINE[response.status_code] + lines + b"\r\n" + bytes(response.body)
