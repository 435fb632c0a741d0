"""What following runs needs of the database: their rows, their events, and being woken for either."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from throughline.domain.events import RunEnded, RunEvent
from throughline.domain.ids import RunId
from throughline.domain.run import Run, RunStatus


@dataclass(frozen=True, slots=True)
class Seen:
    """What a waiting reader has seen of its run: the number of the last event, and the run's status."""

    run_id: RunId
    seq: int
    status: RunStatus


class RunWaiter(Protocol):
    """The wait of one reader of one run."""

    def after(self, seq: int) -> tuple[RunEvent, ...]:
        """Take the events that came with a notification; empty unless they follow `seq` without a gap."""
        ...

    async def wait_behind(self, seen: Seen, timeout_seconds: float) -> bool:
        """Return True when woken since the last wait, or for more than what was `seen`; False after the timeout."""
        ...


class FollowedRuns(Protocol):
    """Runs as their readers need them. No connection is held between two calls."""

    def follow(self, run_id: RunId, *, ends_only: bool = False) -> AbstractAsyncContextManager[RunWaiter]:
        """Wake the yielded waiter for new events, with `ends_only` only when the run may have ended."""
        ...

    async def reload(self, run: Run) -> Run:
        """Return the run as it stands now, whoever owns it by now. Raises NotFound once it is erased."""
        ...

    async def read_events(self, run_id: RunId, after_seq: int, limit: int = 500) -> tuple[RunEvent, ...]:
        """Return up to `limit` stored events after number `after_seq`, in order."""
        ...

    async def replay(self, run: Run) -> tuple[RunEvent, ...]:
        """Return `reset`, what the stored messages say, and the last event of an ended run."""
        ...

    async def ending(self, run: Run) -> RunEnded:
        """Return the last event of an ended run, made from the stored rows."""
        ...

    async def is_anything_worked_on(self) -> bool:
        """Whether a worker holds a lease on any run."""
        ...
