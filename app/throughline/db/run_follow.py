"""Reading a run's events as they are stored, from any point on, and giving up where no worker is at work.

No database connection is held while waiting.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from throughline.db.connection.wakeup import RunWakeup, Seen
from throughline.db.database import Database
from throughline.db.runs.replay import STAND_IN_END
from throughline.domain.errors import NoWorkerAvailable
from throughline.domain.events import AnswerReset, RunEvent
from throughline.domain.run import Run

PAGE = 500
HEARTBEAT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing has happened for a heartbeat's time; the run as it stands now."""

    run: Run


Followed: TypeAlias = tuple[RunEvent, ...] | Idle


def _go_on() -> None:
    """Let every wait begin."""


@dataclass(frozen=True, slots=True)
class Following:
    """How runs are followed in this process.

    Idle comes after `heartbeat_seconds` without an event, and costs no statement; `monotonic` returns seconds that
    never run backwards. `before_waiting` is called before each wait, and when one brought nothing; what it raises ends
    the following.
    """

    database: Database
    monotonic: Callable[[], float]
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    before_waiting: Callable[[], None] = _go_on

    async def events(self, run: Run, *, after: int = 0, is_fresh: bool = False) -> AsyncGenerator[Followed]:
        """Yield the events after `after` in batches, and Idle now and then, up to the run's last event.

        `is_fresh`: this process has just begun the run, so there is nothing to read yet. Events that were erased
        (short retention, a crash of the database) are stood in for by `reset`, the stored messages and the stored end.
        Raises NotFound once the run is erased.
        """
        beat = _Beat(self)
        async with self.database.watch.follow(run.id) as wakeup:
            may_have_more, was_woken, is_over = not is_fresh, False, False
            while not is_over:
                events = await self._new_events(run, after, wakeup) if may_have_more else ()
                if events:
                    yield events
                    beat.restart()
                    after, is_over = events[-1].seq, events[-1].is_last
                    may_have_more, was_woken = True, False
                elif run.status.is_final:
                    yield await self.database.replay.events(run)
                    is_over = True
                elif was_woken:  # without events: begun, ended, or erased with its session
                    self.before_waiting()
                    run, was_woken = await self.database.runs.get_run(run.owner_id, run.id), False
                else:
                    self.before_waiting()
                    was_woken = await wakeup.wait_behind(Seen(run.id, after, run.status), beat.seconds_left())
                    may_have_more = was_woken
                if not is_over and beat.seconds_left() == 0:
                    yield Idle(run)
                    beat.restart()

    async def end(self, run: Run) -> AsyncGenerator[Followed]:
        """Yield Idle now and then, and at last the run's end: its row is read as it changes, its other events never.

        Raises NotFound once the run is erased.
        """
        beat = _Beat(self)
        async with self.database.watch.follow(run.id, ends_only=True) as wakeup:
            run = await self.database.runs.get_run(run.owner_id, run.id)  # it may have ended before we listened
            while not run.status.is_final:
                self.before_waiting()
                if await wakeup.wait_behind(Seen(run.id, STAND_IN_END, run.status), beat.seconds_left()):
                    run = await self.database.runs.get_run(run.owner_id, run.id)
                if beat.seconds_left() == 0:
                    yield Idle(run)
                    beat.restart()
        yield (RunEvent(run.id, STAND_IN_END, await self.database.replay.ending(run)),)

    async def find_start(self, run: Run, last_seen: int) -> int | None:
        """Return after which event a reader that saw `last_seen` goes on; None where it has seen the last event.

        A sequence number that is not stored (any more) means that the numbering began anew: -1, start over.
        """
        if last_seen <= 0:
            return 0
        if last_seen == STAND_IN_END and run.status.is_final:
            return None
        anchor = await self.database.events.read_events(run.id, last_seen - 1, 1)
        if not anchor or anchor[0].seq != last_seen:
            return -1
        return None if anchor[0].is_last else last_seen

    async def _new_events(self, run: Run, after: int, wakeup: RunWakeup) -> tuple[RunEvent, ...]:
        """Take the events that came with the wakeup, else look into the table."""
        brought = wakeup.after(after)
        if brought:
            return brought
        async with self.database.watch.reading:
            return await self.database.events.read_events(run.id, after, PAGE)


class _Beat:
    """When the next sign of life is due."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._last = following.monotonic()

    def restart(self) -> None:
        self._last = self._following.monotonic()

    def seconds_left(self) -> float:
        return max(self._last + self._following.heartbeat_seconds - self._following.monotonic(), 0.0)


def reset_event(run: Run, seq: int = 0) -> RunEvent:
    """Return the event that tells a reader to forget what it was shown of the run."""
    return RunEvent(run.id, seq, AnswerReset(run.attempt))


async def follow_while_worked_on(
    following: Following, followed: AsyncGenerator[Followed], *, timeout_seconds: float
) -> AsyncGenerator[Followed]:
    """Yield what is followed. Raises NoWorkerAvailable once no worker was at work for `timeout_seconds`."""
    timeout = _WorkerTimeout(following, timeout_seconds)
    async with aclosing(followed):
        async for item in followed:
            if isinstance(item, Idle):
                await timeout.check(item.run)
            else:
                timeout.restart()
            yield item


class _WorkerTimeout:
    """Counts only the time in which no worker was seen at work: behind the runs of others one waits for one's turn.

    What the run's own row says does not count: one whose worker died says `running` until somebody takes it up.
    """

    def __init__(self, following: Following, timeout_seconds: float) -> None:
        self._following = following
        self._timeout_seconds = timeout_seconds
        self._since = following.monotonic()

    def restart(self) -> None:
        self._since = self._following.monotonic()

    async def check(self, run: Run) -> None:
        if run.status.is_final or await self._following.database.watch.is_anything_worked_on():
            self.restart()
            return
        if self._following.monotonic() - self._since < self._timeout_seconds:
            return
        raise NoWorkerAvailable(
            f"Nobody worked on run {run.id} for {self._timeout_seconds:g} seconds: no worker takes any "
            "(`throughline worker` starts one). The message is kept and will be answered; ask for the run later.",
            delay_seconds=self._timeout_seconds,
        )
