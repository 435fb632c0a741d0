"""How long a request that waits for its answer hopes for a worker."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.api.call import Call
from app.api.follow import Followed, Idle
from app.domain.errors import NoWorkerAvailable
from app.domain.run import Run, RunStatus


async def follow_patiently(call: Call, followed: AsyncGenerator[Followed]) -> AsyncGenerator[Followed]:
    """Yield what is followed. Raises NoWorkerAvailable once nobody has taken the run for too long."""
    patience = _Patience(call)
    async with aclosing(followed):
        async for news in followed:
            if isinstance(news, Idle):
                await patience.check(news.run)
            yield news


class _Patience:
    """Counts only the time in which a worker could have begun the run: not while an earlier turn is at work."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._since = call.services.clock.monotonic()

    async def check(self, run: Run) -> None:
        now = self._call.services.clock.monotonic()
        if run.status is not RunStatus.QUEUED or await self._call.services.database.runs.is_behind_running(run.id):
            self._since = now
            return
        seconds = self._call.config.no_worker_timeout_seconds
        if now - self._since < seconds:
            return
        raise NoWorkerAvailable(
            f"The run was not begun within {seconds:g} seconds: no worker is free (`throughline worker` adds one). "
            f"The message is kept and will be answered: GET /v1/runs/{run.id}.",
            delay_seconds=seconds,
        )
