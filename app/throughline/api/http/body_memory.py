"""Budget of bytes for the request bodies that a process holds at once, with a share for each owner.

`api/http/body_cap.py` limits one body; this budget limits all bodies together. A request takes its bytes before its
body is read, so that every body whose reading has begun can be read completely.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from uuid import UUID

from throughline.api.http.request_errors import BodyMemoryExhausted
from throughline.domain.ids import UserId
from throughline.execution.compute_threads import present_owner
from throughline.execution.owner_limits import LimitReached, OwnerLimits

UNCOUNTED_BYTES = 65_536
"""Largest body in bytes that the budget does not count. The buffers of a connection hold as much in any case."""

NOBODY = UserId(UUID(int=0))
"""Owner of the bodies that are read before their sender is known: Slack's requests, which are signed as a whole."""

RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    owner_id: UserId
    size: int
    admitted: asyncio.Future[None]


class BodyMemory:
    """Budget of bytes for request bodies.

    A request takes bytes before its body is read, and gives them back once the body was read or the request ended.
    """

    def __init__(self, total_bytes: int, largest_body_bytes: int) -> None:
        """Limit all bodies to `total_bytes`, and each owner to half of that or the largest body, whichever is more."""
        self._limits = OwnerLimits(total_bytes, max(total_bytes // 2, largest_body_bytes))
        self._waiting: deque[_Waiting] = deque()

    async def take(self, owner_id: UserId | None, size: int, timeout_seconds: float) -> None:
        """Wait for `size` free bytes and take them. Raises BodyMemoryExhausted after `timeout_seconds`."""
        waiting = _Waiting(owner_id or NOBODY, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._admit()
        try:
            async with asyncio.timeout(timeout_seconds):
                await waiting.admitted
        except TimeoutError:
            self._leave(waiting)
            raise BodyMemoryExhausted(
                "Large requests of yours, or of all users, use the bytes that MAX_HELD_BODY_BYTES allows: "
                f"{size} bytes did not become free within {timeout_seconds:g} seconds. Try again later.",
                delay_seconds=RETRY_SECONDS,
            ) from None
        except asyncio.CancelledError:
            self._leave(waiting)
            raise

    def give_back(self, owner_id: UserId | None, size: int) -> None:
        """Give `size` bytes of the owner back and admit waiting requests."""
        self._limits.give_back(owner_id or NOBODY, size)
        self._admit()

    def _leave(self, waiting: _Waiting) -> None:
        """Withdraw a waiting request, or give its bytes back if it was admitted at the same moment."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            self._admit()
        else:
            self.give_back(waiting.owner_id, waiting.size)

    def _admit(self) -> None:
        """Admit waiting requests in order of arrival.

        A request that waits for its owner's share does not block requests of other owners.
        """
        for waiting in tuple(self._waiting):
            taken = self._limits.take(waiting.owner_id, waiting.size)
            if taken is LimitReached.BY_ALL:
                return
            if taken is None:
                self._waiting.remove(waiting)
                if not waiting.admitted.done():
                    waiting.admitted.set_result(None)


class BodyReservation:
    """The bytes of the budget that one request holds.

    A body up to UNCOUNTED_BYTES holds none. A larger body holds its declared length, or its cap if no length is
    declared.
    """

    def __init__(self, budget: BodyMemory, size: int, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        self._budget = budget
        self._size = size if size > UNCOUNTED_BYTES else 0
        self._owner_id: UserId | None = None
        self.is_held = False

    async def take(self) -> None:
        """Take the request's bytes from the budget, in the name of the admitted owner. Raises BodyMemoryExhausted."""
        if self._size:
            self._owner_id = present_owner()
            await self._budget.take(self._owner_id, self._size, self.timeout_seconds)
            self.is_held = True

    def release(self) -> None:
        """Give the bytes back, if any are held. Called when the body has been read or its request has ended."""
        if self.is_held:
            self.is_held = False
            self._budget.give_back(self._owner_id, self._size)
