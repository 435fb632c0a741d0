"""Run events as server-sent events. The close rule: a clean end only after the last event, else the body is cut."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from fastapi import Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from throughline.api.http.call import Call
from throughline.api.http.request_errors import StreamAborted
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import RunEvent
from throughline.domain.run import Run
from throughline.turn.follow_run import Followed, Idle

HEARTBEAT = b": heartbeat\n\n"
MEDIA_TYPE = "text/event-stream"
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunStream:
    """What is `followed` of a run, to be streamed behind `first`, each event as `render` writes it."""

    run: Run
    followed: AsyncGenerator[Followed]
    render: Callable[[RunEvent], bytes]
    first: Sequence[Followed] = ()


def stream_run(call: Call, stream: RunStream) -> Response:
    """Return the response that sends the stream."""
    headers = {**STREAM_HEADERS, "Content-Location": f"/v1/runs/{stream.run.id}/events"}
    return EventStream(_chunks(stream), headers, send_timeout_seconds=call.config.send_timeout_seconds)


def nothing_more() -> Response:
    """Return the answer for a reader that has seen the last event: 204 tells an EventSource to stop coming back."""
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=STREAM_HEADERS)


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


async def _chunks(stream: RunStream) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(stream.followed) as followed:
            for item in stream.first:
                yield _chunk(stream, item)
            async for item in followed:
                yield _chunk(stream, item)
    except ThroughlineError as error:
        log.warning("event stream broke", run_id=str(stream.run.id), error=error.code)
        raise StreamAborted from error


def _chunk(stream: RunStream, item: Followed) -> bytes:
    match item:
        case Idle():
            return HEARTBEAT
        case events:
            return b"".join(stream.render(event) for event in events)
