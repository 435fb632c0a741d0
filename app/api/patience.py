"""How long a request that waits for a run hopes for a worker."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from fastapi import Request, Response

from app.api.call import Call
from app.api.errors import error_problem
from app.api.follow import following_of
from app.api.refusals import ServiceStopping, StreamAborted
from app.api.sse import stream_run
from app.db.run_follow import Followed, Idle
from app.db.run_patience import follow_patiently
from app.domain.errors import TemporaryError
from app.domain.run import Run, RunStatus


def follow_run(call: Call, run: Run, *, after: int = 0, is_fresh: bool = False) -> AsyncGenerator[Followed]:
    """Follow the run as Following.events.

    Raises NoWorkerAvailable too, NotAuthenticated once the request's key is revoked, and StreamAborted once the process
    stops.
    """
    following = following_of(call)
    followed = follow_patiently(
        following,
        following.events(run, after=after, is_fresh=is_fresh),
        timeout_seconds=call.config.no_worker_timeout_seconds,
    )
    return _while_in_force(call, followed)


async def _while_in_force(call: Call, followed: AsyncGenerator[Followed]) -> AsyncGenerator[Followed]:
    clock, seconds = call.services.clock, call.config.key_cache_seconds
    checked_at = clock.monotonic()
    async with aclosing(followed):
        async for news in followed:
            if clock.monotonic() - checked_at >= seconds:
                await call.recheck()
                checked_at = clock.monotonic()
            yield news


async def stream_patiently(
    request: Request, call: Call, run: Run, followed: AsyncGenerator[Followed], *, first: Sequence[Followed] = ()
) -> Response:
    """Stream what `follow_run` yields of the run, `first` before it.

    While it waits for a worker the answer is not begun, so that it can still be a problem: 503, with Retry-After.
    """
    if run.status is RunStatus.QUEUED and not await call.services.database.runs.is_anything_worked_on():
        try:
            first = (*first, *await _first_sign(request, followed))
        except TemporaryError as error:
            return error_problem(error, run_id=str(run.id))
        except StreamAborted:
            return error_problem(stopping(run), run_id=str(run.id))
    return stream_run(call, run, followed, first=first)


def stopping(run: Run) -> ServiceStopping:
    """Return the error for a reader whose process stops."""
    return ServiceStopping(f"The service stops. The message is kept; the run goes on: GET /v1/runs/{run.id}.")


async def _first_sign(request: Request, followed: AsyncGenerator[Followed]) -> tuple[Followed, ...]:
    """Return the first news that show a run at work, or nobody who asks any more. Raises NoWorkerAvailable."""
    async for news in followed:
        if not isinstance(news, Idle) or news.run.status is not RunStatus.QUEUED or await request.is_disconnected():
            return (news,)
    return ()
