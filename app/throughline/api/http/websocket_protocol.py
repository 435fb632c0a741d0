"""WebSocket connections: which requests become one, and two cases that uvicorn's protocol does not close.

Each is limited further: `ConnectionLimits.max_message_bytes`, and one message in memory until it is taken.
"""

from collections.abc import Sequence

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

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
