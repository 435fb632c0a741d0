"""The part of the store that heartbeats use, answering as it is told."""

import asyncio
from collections.abc import Collection, Mapping

from throughline.domain.run import LeaseRenewal, RowLease


class BeatStore:
    """Renews every lease; `failures` are raised one by one instead, `locked` says how often a row is passed over."""

    def __init__(self, *, failures: list[Exception] | None = None, locked: int = 0) -> None:
        self.calls: list[frozenset[RowLease]] = []
        self.cancelled: set[RowLease] = set()
        self.lost: set[RowLease] = set()
        self._failures = failures or []
        self._locked = locked
        self._called = asyncio.Event()

    async def renew(self, leases: Collection[RowLease], lease_seconds: float) -> Mapping[RowLease, LeaseRenewal]:
        del lease_seconds
        self.calls.append(frozenset(leases))
        self._called.set()
        if self._failures:
            raise self._failures.pop(0)
        self._locked -= 1
        is_free = self._locked < 0
        return {lease: LeaseRenewal(lease in self.cancelled, is_free) for lease in leases if lease not in self.lost}

    async def called(self, times: int) -> None:
        """Return once there were so many calls in all."""
        while len(self.calls) < times:
            self._called.clear()
            await self._called.wait()
