"""Following a run's events on behalf of an HTTP request, on top of `turn/follow_run.py`, and as server-sent events.

Following ends early if the process stops, no worker is available, or the request's key is revoked. A stream ends
cleanly only after the run's last event; otherwise the connection is cut, so that the reader reconnects.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus

import structlog
from fastapi import Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from throughline.domain.errors import TemporaryError, ThroughlineError
from throughline.domain.events import RunEnded, RunEvent, RunWaiting
from throughline.domain.run import Run
from throughline.http.call import Call
from throughline.http.problem_documents import error_problem
from throughline.http.route_errors import ServiceStopping, StreamAborted
from throughline.turn.follow_run import Followed, Following, Idle, follow_while_worked_on

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


def follow_run(call: Call, run: Run, *, after: int = 0, is_fresh: bool = False) -> AsyncGenerator[Followed]:
    """Yield the run's events after sequence number `after`, up to the last one, and Idle while no event comes.

    `is_fresh`: this process has just started the run, so that no event is stored yet. Raises NotFound once the run is
    deleted, NoWorkerAvailable if no worker is active for too long, NotAuthenticated once the request's key is revoked,
    and StreamAborted once the process stops.
    """
    following = following_of(call)
    return _while_in_force(call, following, following.events(run, after=after, is_fresh=is_fresh))


def follow_end(call: Call, run: Run) -> AsyncGenerator[Followed]:
    """Yield Idle while the run goes on, and at last the event with which it ends or waits. Raises as `follow_run`."""
    following = following_of(call)
    return _while_in_force(call, following, following.end(run))


async def _accept(_run: Run) -> None:
    """Do nothing: the default of `check`."""


async def wait_for_end(
    request: Request, followed: AsyncGenerator[Followed], check: Callable[[Run], Awaitable[None]] = _accept
) -> RunEnded | RunWaiting | None:
    """Return the event with which the followed run ends or waits, None once the client is gone or the process stops.

    `check` gets the run's row while no event comes; an exception that it raises ends the wait. Raises as `follow_run`.
    """
    with suppress(StreamAborted):
        async with aclosing(followed):
            return await _last_end(request, followed, check)
    return None


async def _last_end(
    request: Request, followed: AsyncGenerator[Followed], check: Callable[[Run], Awaitable[None]]
) -> RunEnded | RunWaiting | None:
    """Return the last event with which the run ends or waits: a resumed run has more than one."""
    ended: RunEnded | RunWaiting | None = None
    async for item in followed:
        if isinstance(item, Idle):
            if await request.is_disconnected():
                return None
            await check(item.run)
        elif isinstance(item[-1].event, RunEnded | RunWaiting):
            ended = item[-1].event
    return ended


async def _while_in_force(
    call: Call, following: Following, followed: AsyncGenerator[Followed]
) -> AsyncGenerator[Followed]:
    """Yield the items of `followed` while a worker is active and the request's key is in force."""
    clock, seconds = call.services.clock, call.config.key_cache_seconds
    followed = follow_while_worked_on(following, followed, timeout_seconds=call.config.no_worker_timeout_seconds)
    checked_at = clock.monotonic()
    async with aclosing(followed):
        async for item in followed:
            if clock.monotonic() - checked_at >= seconds:
                await call.recheck()
                checked_at = clock.monotonic()
            yield item


async def stream_or_refuse(request: Request, call: Call, stream: RunStream) -> Response:
    """Return the stream of the run's events, or a 503 problem if no worker takes the run in time.

    While the run waits for a worker the response is not begun, so that it can still become a problem with Retry-After.
    It also becomes one if the process stops during that wait.
    """
    run = stream.run
    if run.status.needs_worker and not await call.services.database.followed_runs.has_running_worker():
        try:
            stream = replace(stream, first=(*stream.first, *await _first_sign(request, call, stream.followed)))
        except TemporaryError as error:
            return error_problem(error, run_id=str(run.id))
        except StreamAborted:
            return error_problem(stopping(run), run_id=str(run.id))
    return stream_run(call, stream)


def stopping(run: Run) -> ServiceStopping:
    """Return the error for a request that follows `run` while the process stops."""
    return ServiceStopping(
        f"The service is stopping. The message is kept and the run continues: GET /v1/runs/{run.id}."
    )


async def _first_sign(request: Request, call: Call, followed: AsyncGenerator[Followed]) -> tuple[Followed, ...]:
    """Return the run's first events; or Idle, once a worker is active, the session waits, or the client is gone.

    Empty if the run's events end before that. Raises NoWorkerAvailable if no worker becomes active in time.
    """
    runs = call.services.database.followed_runs
    async for item in followed:
        if not isinstance(item, Idle) or await runs.has_running_worker() or await runs.find_waiting(item.run):
            return (item,)
        if await request.is_disconnected():
            return (item,)
    return ()


def following_of(call: Call) -> Following:
    """Return the settings for following a run in this request: waiting raises StreamAborted once the process stops."""

    def stop_if_stopping() -> None:
        if call.services.shutting_down.is_set():
            raise StreamAborted

    return Following(
        runs=call.services.database.followed_runs,
        monotonic=call.services.clock.monotonic,
        heartbeat_seconds=call.config.heartbeat_seconds,
        before_waiting=stop_if_stopping,
    )
