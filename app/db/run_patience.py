"""How long somebody who waits for a run hopes for a worker."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.db.run_follow import Followed, Following, Idle
from app.domain.errors import NoWorkerAvailable
from app.domain.run import Run, RunStatus


async def follow_patiently(
    following: Following, followed: AsyncGenerator[Followed], *, timeout_seconds: float
) -> AsyncGenerator[Followed]:
    """Yield what is followed. Raises NoWorkerAvailable once no worker was at work for `timeout_seconds`."""
    patience = _Patience(following, timeout_seconds)
    async with aclosing(followed):
        async for news in followed:
            if isinstance(news, Idle):
                await patience.check(news.run)
            yield news


class _Patience:
    """Counts only the time in which no worker was seen at work: behind the runs of others one waits for one's turn."""

    def __init__(self, following: Following, timeout_seconds: float) -> None:
        self._following = following
        self._timeout_seconds = timeout_seconds
        self._since = following.monotonic()

    async def check(self, run: Run) -> None:
        now = self._following.monotonic()
        if run.status is not RunStatus.QUEUED or await self._following.database.runs.is_anything_worked_on():
            self._since = now
            return
        if now - self._since < self._timeout_seconds:
            return
        raise NoWorkerAvailable(
            f"Run {run.id} was not begun within {self._timeout_seconds:g} seconds: no worker takes any "
            "(`throughline worker` starts one). The message is kept and will be answered; ask for the run later.",
            delay_seconds=self._timeout_seconds,
        )
