"""Run events as server-sent events. The close rule: a clean end only after the last event, else the body is cut."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus

import structlog
from fastapi import Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.http.call import Call
from app.api.http.refusals import StreamAborted
from app.api.http.responses import json_bytes
from app.db.run_follow import Followed, Idle
from app.domain.errors import ThroughlineError
from app.domain.events import RunEvent
from app.domain.run import Run

HEARTBEAT = b": heartbeat\n\n"
MEDIA_TYPE = "text/event-stream"
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
# Legal inside JSON strings, but taken for line ends by many readers of the stream.
LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
log = structlog.get_logger(__name__)


def stream_run(call: Call, run: Run, followed: AsyncGenerator[Followed], *, first: Sequence[Followed] = ()) -> Response:
    """Return the response that streams what is `followed` of the run, `first` before it."""
    headers = {**STREAM_HEADERS, "Content-Location": f"/v1/runs/{run.id}/events"}
    chunks = _chunks(run, first, followed)
    return EventStream(chunks, headers, send_timeout_seconds=call.config.send_timeout_seconds)


def nothing_more() -> Response:
    """Return the answer for a reader that has seen the last event: 204 tells an EventSource to stop coming back."""
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=STREAM_HEADERS)


def render_event(event: RunEvent) -> bytes:
    """Return one event as it goes over the wire: id, name, and JSON in one line."""
    data = json_bytes(dict(event.data))
    for raw, escaped in LINE_ENDS:
        data = data.replace(raw, escaped)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.value.encode(), data)


class EventStream(StreamingResponse):
    """A stream that is cut, not ended, when its generator gives up or its reader takes too long."""

    media_type = MEDIA_TYPE

    def __init__(
        self, chunks: AsyncGenerator[bytes], headers: Mapping[str, str], *, send_timeout_seconds: float
    ) -> None:
        """Stream `chunks`; a reader that takes nothing for `send_timeout_seconds` is let go."""
        super().__init__(chunks, headers=headers)
        self._chunks = chunks
        self._send_timeout_seconds = send_timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; returning without the final chunk makes the server cut the connection."""
        try:
            await super().__call__(scope, receive, send)
        except StreamAborted:
            log.info("event stream aborted")

    async def stream_response(self, send: Send) -> None:
        """Send head, chunks and end. Raises StreamAborted."""
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


async def _chunks(run: Run, first: Sequence[Followed], followed: AsyncGenerator[Followed]) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(followed):
            for item in first:
                yield _chunk(item)
            async for item in followed:
                yield _chunk(item)
    except ThroughlineError as error:
        log.warning("event stream broke", run_id=str(run.id), error=error.code)
        raise StreamAborted from error


def _chunk(item: Followed) -> bytes:
    match item:
        case Idle():
            return HEARTBEAT
        case events:
            return b"".join(render_event(event) for event in events)
