"""Following a run's events on behalf of an HTTP request, on top of `turn/follow_run.py`.

Following ends early if the process stops, no worker is available, or the request's key is revoked.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from fastapi import Request, Response

from throughline.domain.errors import TemporaryError
from throughline.domain.run import Run
from throughline.http.call import Call
from throughline.http.problem_documents import error_problem
from throughline.http.route_errors import ServiceStopping, StreamAborted
from throughline.http.sse import RunStream, stream_run
from throughline.turn.follow_run import Followed, Following, Idle, follow_while_worked_on


def follow_run(call: Call, run: Run, *, after: int = 0, is_fresh: bool = False) -> AsyncGenerator[Followed]:
    """Yield the run's events after sequence number `after`, up to the last one, and Idle while no event comes.

    `is_fresh`: this process has just started the run, so that no event is stored yet. Raises NotFound once the run is
    deleted, NoWorkerAvailable if no worker is active for too long, NotAuthenticated once the request's key is revoked,
    and StreamAborted once the process stops.
    """
    following = following_of(call)
    followed = follow_while_worked_on(
        following,
        following.events(run, after=after, is_fresh=is_fresh),
        timeout_seconds=call.config.no_worker_timeout_seconds,
    )
    return _while_in_force(call, followed)


async def _while_in_force(call: Call, followed: AsyncGenerator[Followed]) -> AsyncGenerator[Followed]:
    clock, seconds = call.services.clock, call.config.key_cache_seconds
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
