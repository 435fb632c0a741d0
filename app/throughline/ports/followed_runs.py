"""The interface that readers of runs need from the database: run rows, events, and notifications of changes."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from throughline.domain.events import RunEnded, RunEvent, RunWaiting
from throughline.domain.ids import RunId
from throughline.domain.run import Run, RunStatus


@dataclass(frozen=True, slots=True)
class Seen:
    """The last event number and the status that a waiting reader has seen of its run."""

    run_id: RunId
    seq: int
    status: RunStatus


class RunWaiter(Protocol):
    """The subscription of one reader to one run."""

    def after(self, seq: int) -> tuple[RunEvent, ...]:
        """Take the events that this process delivered since the last call; empty unless they follow `seq` directly.

        If empty, the reader reads the events from the database.
        """
        ...

    async def wait_beyond(self, seen: Seen, timeout_seconds: float) -> bool:
        """Wait until the run has changed beyond what was `seen`; False if `timeout_seconds` passed first."""
        ...


class FollowedRuns(Protocol):
    """Access to runs for their readers. No database connection is held between two calls."""

    def follow(self, run_id: RunId, *, ends_only: bool = False) -> AbstractAsyncContextManager[RunWaiter]:
        """Yield a waiter that is woken for new events, or with `ends_only` only if the run may have ended."""
        ...

    async def reload(self, run: Run) -> Run:
        """Return the current state of the run, even if its owner has changed. Raises NotFound if it was erased."""
        ...

    async def read_events(self, run_id: RunId, after_seq: int, limit: int = 500) -> tuple[RunEvent, ...]:
        """Return up to `limit` stored events after event number `after_seq`, in order."""
        ...

    async def replay(self, run: Run) -> tuple[RunEvent, ...]:
        """Return an ended or waiting run's events, reconstructed from its messages: `reset`, messages, end or wait."""
        ...

    async def ending(self, run: Run) -> RunEnded | RunWaiting:
        """Return the last event of an ended or waiting run, made from its stored rows."""
        ...

    async def find_waiting(self, run: Run) -> Run | None:
        """Return the waiting run of the session behind which the queued `run` stands in line; None without one."""
        ...

    async def has_running_worker(self) -> bool:
        """Whether any worker holds an unexpired lease on any run."""
        ...
