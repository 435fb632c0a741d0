"""Budget of bytes for the request bodies that a process holds at once, with a share for each owner.

`api/http/body_cap.py` bounds one body; here is what bounds many of them together. A body waits for its bytes before
it is read, so that those that are read can be read to their end.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from uuid import UUID

from throughline.api.http.request_errors import BodiesHeld
from throughline.domain.ids import UserId
from throughline.execution.compute_threads import present_owner
from throughline.execution.owner_limits import OwnerLimits, Taken

UNCOUNTED_BYTES = 65_536
"""Bodies up to this size are not counted: as much is in the buffers of any connection."""

NOBODY = UserId(UUID(int=0))
"""Owner of all bodies that are read before it is known who sends them: Slack's, which are signed as a whole."""

RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    owner_id: UserId
    size: int
    admitted: asyncio.Future[None]


class BodyBudget:
    """Bytes of bodies, taken before a body is read and given back when its request has been answered."""

    def __init__(self, total_bytes: int, largest_body_bytes: int) -> None:
        """Allow `total_bytes` in all, and each owner half of them, or the largest body if that is more."""
        self._limits = OwnerLimits(total_bytes, max(total_bytes // 2, largest_body_bytes))
        self._waiting: deque[_Waiting] = deque()

    async def take(self, owner_id: UserId | None, size: int, timeout_seconds: float) -> None:
        """Take `size` bytes, waiting until there are as many. Raises BodiesHeld after `timeout_seconds`."""
        waiting = _Waiting(owner_id or NOBODY, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._admit()
        try:
            async with asyncio.timeout(timeout_seconds):
                await waiting.admitted
        except TimeoutError:
            self._leave(waiting)
            raise BodiesHeld(
                f"Large requests of yours, or of all users, hold the bytes that MAX_HELD_BODY_BYTES allows: {size} did "
                f"not become free within {timeout_seconds:g} seconds. Try again later.",
                delay_seconds=RETRY_SECONDS,
            ) from None
        except asyncio.CancelledError:
            self._leave(waiting)
            raise

    def give_back(self, owner_id: UserId | None, size: int) -> None:
        """Give `size` bytes back, to those that wait."""
        self._limits.give_back(owner_id or NOBODY, size)
        self._admit()

    def _leave(self, waiting: _Waiting) -> None:
        """Take a body that waits no longer out of the line, or give back what it was admitted with at the same time."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            self._admit()
        else:
            self.give_back(waiting.owner_id, waiting.size)

    def _admit(self) -> None:
        """Admit waiting bodies in their order; one that waits for its owner's share lets others pass."""
        for waiting in tuple(self._waiting):
            taken = self._limits.take(waiting.owner_id, waiting.size)
            if taken is Taken.BY_ALL:
                return
            if taken is None:
                self._waiting.remove(waiting)
                if not waiting.admitted.done():
                    waiting.admitted.set_result(None)


class HeldBytes:
    """What one request holds of the budget: nothing for a small body, else its declared length, or its cap."""

    def __init__(self, budget: BodyBudget, size: int, timeout_seconds: float) -> None:
        """Hold nothing yet."""
        self.timeout_seconds = timeout_seconds
        self._budget = budget
        self._size = size if size > UNCOUNTED_BYTES else 0
        self._owner_id: UserId | None = None
        self.is_held = False

    async def take(self) -> None:
        """Take the bytes for whoever was admitted with the request. Raises BodiesHeld."""
        if self._size:
            self._owner_id = present_owner()
            await self._budget.take(self._owner_id, self._size, self.timeout_seconds)
            self.is_held = True

    def release(self) -> None:
        """Give the bytes back: the body has been read, or its request has ended."""
        if self.is_held:
            self.is_held = False
            self._budget.give_back(self._owner_id, self._size)
