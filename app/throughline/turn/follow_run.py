"""Reader of a run's events, for REST, Slack and the Python client.

It starts after any event and ends with the run, or when no worker is active. It holds no database connection while it
waits.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from throughline.domain.errors import NoWorkerAvailable
from throughline.domain.events import REPLAYED_END_SEQ, AnswerReset, RunEvent
from throughline.domain.run import Run, RunStatus
from throughline.ports.storage import FollowedRuns, RunWaiter, Seen

HEARTBEAT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Idle:
    """Item yielded when no event came for a heartbeat's time; `run` is the run's current row."""

    run: Run


Followed: TypeAlias = tuple[RunEvent, ...] | Idle


def _go_on() -> None:
    """Do nothing: the default of `before_waiting`."""


@dataclass(frozen=True, slots=True)
class Following:
    """Reader of runs' events, with the settings of this process.

    Idle is yielded after `heartbeat_seconds` without an event, and costs no statement. `monotonic` returns seconds that
    never run backwards. `before_waiting` is called before each wait, and after a notification that brought no event; an
    exception that it raises ends the following.
    """

    runs: FollowedRuns
    monotonic: Callable[[], float]
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    before_waiting: Callable[[], None] = _go_on

    async def events(self, run: Run, *, after: int = 0, is_fresh: bool = False) -> AsyncGenerator[Followed]:
        """Yield the run's events after sequence number `after` in batches, and Idle in between.

        The events end with the run's last one, or with the one that says that the run waits. A reader that has seen
        that one is given what follows once the run is resumed.

        `is_fresh` says that this process has just started the run, so that no event is stored yet. If events were
        deleted (short retention, a crash of the database), `reset`, the stored messages and the stored end or wait are
        yielded in their place. Raises NotFound once the run is deleted.
        """
        poll = _Poll(self)
        async with self.runs.follow(run.id) as waiter:
            may_have_more, was_woken, is_over = not is_fresh, False, False
            while not is_over:
                brought = waiter.after(after) if may_have_more else ()
                events = await self.runs.read_events(run.id, after) if may_have_more and not brought else brought
                if events:
                    yield events
                    poll.restart()
                    after, may_have_more, was_woken = events[-1].seq, not brought or run.status.is_final, False
                    is_over = events[-1].is_last or (events[-1].is_pause and await self._still_waits(run, after))
                elif run.status.is_final or (run.status is RunStatus.WAITING and not after):
                    yield await self.runs.replay(run)
                    is_over = True
                elif was_woken:  # notified without events: the run was started, ended, or deleted with its session
                    self.before_waiting()
                    run, was_woken = await self.runs.reload(run), False
                else:
                    self.before_waiting()
                    was_woken = await poll.wait(waiter, Seen(run.id, after, run.status))
                    may_have_more = was_woken
                if not is_over and poll.is_due():
                    yield Idle(run)
                    poll.restart()

    async def _still_waits(self, run: Run, after: int) -> bool:
        """Return whether the run waits, and event number `after` is its newest."""
        current = await self.runs.reload(run)
        return current.status is RunStatus.WAITING and not await self.runs.read_events(run.id, after, 1)

    async def end(self, run: Run) -> AsyncGenerator[Followed]:
        """Yield Idle in between, and at last the event that the run ends or waits. Its other events are never read.

        The run's row is read again after each notification. Raises NotFound once the run is deleted.
        """
        poll = _Poll(self)
        async with self.runs.follow(run.id, ends_only=True) as waiter:
            run = await self.runs.reload(run)  # it may have ended before the subscription
            while run.status.needs_worker:
                self.before_waiting()
                if await poll.wait(waiter, Seen(run.id, REPLAYED_END_SEQ, run.status)):
                    run = await self.runs.reload(run)
                if poll.is_due():
                    yield Idle(run)
                    poll.restart()
        yield (RunEvent(run.id, REPLAYED_END_SEQ, await self.runs.ending(run)),)

    async def find_start(self, run: Run, last_seen: int) -> int | None:
        """Return the event number after which a reader continues that last saw `last_seen`.

        0 means to read from the first event. None means that the reader has seen the last event. -1 means to start
        over: the number `last_seen` is not stored (any more), so the numbering has restarted.
        """
        if last_seen <= 0:
            return 0
        if last_seen == REPLAYED_END_SEQ and run.status.is_final:
            return None
        anchor = await self.runs.read_events(run.id, last_seen - 1, 1)
        if not anchor or anchor[0].seq != last_seen:
            return -1
        return None if anchor[0].is_last else last_seen


class _Poll:
    """Timer of the next heartbeat, an Idle item."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._last = following.monotonic()

    def restart(self) -> None:
        self._last = self._following.monotonic()

    async def wait(self, waiter: RunWaiter, seen: Seen) -> bool:
        """Wait for more events than `seen`, at most until the heartbeat is due. Return whether there are more."""
        was_woken = await waiter.wait_beyond(seen, self._seconds_left())
        if not was_woken:
            self._last = float("-inf")
        return was_woken

    def is_due(self) -> bool:
        return self._seconds_left() == 0

    def _seconds_left(self) -> float:
        return max(self._last + self._following.heartbeat_seconds - self._following.monotonic(), 0.0)


def reset_event(run: Run, seq: int = 0) -> RunEvent:
    """Return the event that tells a reader to discard everything it has shown of the run."""
    return RunEvent(run.id, seq, AnswerReset(run.attempt))


async def follow_while_worked_on(
    following: Following, followed: AsyncGenerator[Followed], *, timeout_seconds: float
) -> AsyncGenerator[Followed]:
    """Yield the items of `followed`. Raises NoWorkerAvailable once no worker was active for `timeout_seconds`."""
    timeout = _WorkerTimeout(following, timeout_seconds)
    async with aclosing(followed):
        async for item in followed:
            if isinstance(item, Idle):
                await timeout.check(item.run)
            else:
                timeout.restart()
            yield item


class _WorkerTimeout:
    """Timeout that counts only while no worker is active at all; standing in line behind other runs does not count.

    Nor does it count behind a run that waits for something from outside, and so needs no worker.

    The run's own status does not count as activity: the row of a run whose worker has crashed says `running` until
    another worker claims it.
    """

    def __init__(self, following: Following, timeout_seconds: float) -> None:
        self._following = following
        self._timeout_seconds = timeout_seconds
        self._since = following.monotonic()

    def restart(self) -> None:
        self._since = self._following.monotonic()

    async def check(self, run: Run) -> None:
        runs = self._following.runs
        if not run.status.needs_worker or await runs.has_running_worker() or await runs.find_waiting(run):
            self.restart()
            return
        if self._following.monotonic() - self._since < self._timeout_seconds:
            return
        raise NoWorkerAvailable(
            f"No worker claimed run {run.id} within {self._timeout_seconds:g} seconds: no worker takes any "
            "(`throughline worker` starts one). The message is kept and will be answered; ask for the run later.",
            delay_seconds=self._timeout_seconds,
        )
