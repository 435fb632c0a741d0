"""Run events as server-sent events.

A stream ends cleanly only after the run's last event; otherwise the connection is cut, so that the reader reconnects.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from fastapi import Response
from pydantic_core import PydanticSerializationError, to_json
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import RunEvent
from throughline.domain.run import Run
from throughline.http.call import Call
from throughline.http.route_errors import StreamAborted
from throughline.turn.follow_run import Followed, Idle

LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
"""Characters that are legal inside JSON strings, but that many readers of event streams treat as line ends."""


def json_bytes(value: object) -> bytes:
    """Return `value` (JSON types only) as JSON in UTF-8. Text that UTF-8 cannot encode is escaped instead."""
    try:
        return to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeEncodeError):
        return json.dumps(value, ensure_ascii=True).encode()


def json_line(value: object) -> bytes:
    """Return `value` as JSON in UTF-8 without anything that a reader may take for the end of a line."""
    data = json_bytes(value)
    for raw, escaped in LINE_ENDS:
        data = data.replace(raw, escaped)
    return data


class JsonResponse(Response):
    """JSON response for a value of JSON types, as the shapes of `throughline.wire` render it."""

    media_type = "application/json"

    def render(self, content: JsonValue) -> bytes:
        return json_bytes(content)


HEARTBEAT = b": heartbeat\n\n"
MEDIA_TYPE = "text/event-stream"
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunStream:
    """Events of a run to stream. `first`, read already, is sent before `followed`; `render` encodes each event."""

    run: Run
    followed: AsyncGenerator[Followed]
    render: Callable[[RunEvent], bytes]
    first: Sequence[Followed] = ()


def stream_run(call: Call, stream: RunStream) -> Response:
    """Return the response that streams the run's events."""
    headers = {**STREAM_HEADERS, "Content-Location": f"/v1/runs/{stream.run.id}/events"}
    return EventStream(_chunks(stream), headers, send_timeout_seconds=call.config.send_timeout_seconds)


def nothing_more() -> Response:
    """Return 204 for a reader that has seen the last event. It makes an EventSource stop reconnecting."""
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=STREAM_HEADERS)


class EventStream(StreamingResponse):
    """Streaming response that is cut if its generator raises StreamAborted or its reader is too slow."""

    media_type = MEDIA_TYPE

    def __init__(
        self, chunks: AsyncGenerator[bytes], headers: Mapping[str, str], *, send_timeout_seconds: float
    ) -> None:
        """Stream `chunks`; disconnect a reader that accepts nothing for `send_timeout_seconds`."""
        super().__init__(chunks, headers=headers)
        self._chunks = chunks
        self._send_timeout_seconds = send_timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream. After StreamAborted the final chunk is missing, so that the server cuts the connection."""
        try:
            await super().__call__(scope, receive, send)
        except StreamAborted:
            log.info("event stream cut before its last event")

    async def stream_response(self, send: Send) -> None:
        """Send the response's head, chunks and end. Raises StreamAborted if the stream must be cut."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await self._send_in_time(send, chunk)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_in_time(self, send: Send, chunk: bytes) -> None:
        try:
            async with asyncio.timeout(self._send_timeout_seconds):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            raise StreamAborted from None


async def _chunks(stream: RunStream) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(stream.followed) as followed:
            for item in stream.first:
                yield _chunk(stream, item)
            async for item in followed:
                yield _chunk(stream, item)
    except ThroughlineError as error:
        log.warning("event stream cut after an error", run_id=str(stream.run.id), error=error.code)
        raise StreamAborted from error


def _chunk(stream: RunStream, item: Followed) -> bytes:
    match item:
        case Idle():
            return HEARTBEAT
        case events:
            return b"".join(stream.render(event) for event in events)
