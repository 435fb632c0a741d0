"""Renewal of leases, which expire by the database's clock.

One `Heartbeats` renews all its watched leases in one statement. It serves turns, side jobs, Slack deliveries and
summaries on demand. Each table's own statement decides which leases are still valid.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

import structlog

from throughline.domain.errors import TemporaryError
from throughline.domain.run import LeaseRenewal
from throughline.execution.error_boundary import ErrorBoundary

HEARTBEATS_PER_LEASE = 3
AWAY_SECONDS = 0.5
"""Seconds between heartbeats during a database outage.

They are few, so that leases are renewed before other processes claim again (AFTER_OUTAGE_SECONDS in lease_loop.py).
"""

PAUSES_SECONDS = (0.0, 0.05, 0.2, 0.5)
"""Pauses before the tries of one heartbeat, since a row locked by another write is usually free soon after."""

L = TypeVar("L", bound=Hashable)
Renew: TypeAlias = Callable[[Collection[L], float], Awaitable[Mapping[L, LeaseRenewal]]]
"""A function that extends leases by a number of seconds and returns the result for each lease still valid."""

log = structlog.get_logger(__name__)


class StopReason(Enum):
    """Why work must stop before its end."""

    LEASE_LOST = "lease_lost"
    CANCEL_REQUESTED = "cancel_requested"


class Heartbeats(Generic[L]):
    """The renewal of all watched leases of one kind, three times per lease duration, in one statement for all."""

    def __init__(self, renew: Renew[L], lease_seconds: float) -> None:
        """Prepare; renewals start when the first lease is watched."""
        self._renew_leases = renew
        self._lease_seconds = lease_seconds
        self._watched: set[Heartbeat[L]] = set()
        self._woken = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    def of(self, lease: L) -> "Heartbeat[L]":
        """Return a heartbeat for the lease; it is renewed while it is watched."""
        return Heartbeat(self, lease)

    def join(self, heartbeat: "Heartbeat[L]") -> None:
        """Start renewing this heartbeat's lease."""
        self._watched.add(heartbeat)
        if heartbeat.is_due_now:
            self.wake()
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._renew_while_watched(), name="heartbeat")

    def leave(self, heartbeat: "Heartbeat[L]") -> None:
        """Stop renewing this heartbeat's lease."""
        self._watched.discard(heartbeat)
        if not self._watched:
            self.wake()

    def late(self) -> tuple[L, ...]:
        """Return the watched leases that were last renewed more than half a lease duration ago.

        They may expire, and this process must not claim their rows again.
        """
        oldest = time.monotonic() - self._lease_seconds / 2
        return tuple(heartbeat.lease for heartbeat in self._watched if heartbeat.renewed_at < oldest)

    def wake(self) -> None:
        """Renew the leases that are due now, or end the task if no lease is watched."""
        self._woken.set()

    async def _renew_while_watched(self) -> None:
        loop = asyncio.get_running_loop()
        next_heartbeat = loop.time() + self._lease_seconds / HEARTBEATS_PER_LEASE
        while self._watched:
            try:
                async with asyncio.timeout_at(next_heartbeat):
                    await self._woken.wait()
                    await asyncio.sleep(0)  # lets the timeout fire even if leases keep becoming due
            except TimeoutError:
                is_reached = await self._renew_watched(set(self._watched))
                pause = self._lease_seconds / HEARTBEATS_PER_LEASE
                next_heartbeat = loop.time() + (pause if is_reached else min(AWAY_SECONDS, pause))
            else:
                self._woken.clear()
                await self._renew_watched({heartbeat for heartbeat in self._watched if heartbeat.is_due_now})

    async def _renew_watched(self, heartbeats: "Collection[Heartbeat[L]]") -> bool:
        """Renew these leases, with retries for locked rows. Return whether the database was reached.

        A lease that cannot be renewed is kept: a process that claims its row changes the fence, which a later heartbeat
        sees.
        """
        for pause in PAUSES_SECONDS:
            if not heartbeats:
                break
            await asyncio.sleep(pause)
            for heartbeat in heartbeats:
                heartbeat.is_due_now = False  # before the statement: `renew_now` meanwhile asks for a further one
            renewals = await self._renew([heartbeat.lease for heartbeat in heartbeats])
            if renewals is None:
                return False
            for heartbeat in heartbeats:
                heartbeat.apply_renewal(renewals.get(heartbeat.lease))
            heartbeats = [heartbeat for heartbeat in heartbeats if not heartbeat.is_renewed]
        return True

    async def _renew(self, leases: Collection[L]) -> Mapping[L, LeaseRenewal] | None:
        """Return the renewals of the leases that are still valid; None if the database was not reached."""
        with ErrorBoundary(log.error, task="heartbeat", leases=len(leases)):
            try:
                return await self._renew_leases(leases, self._lease_seconds)
            except TemporaryError as error:
                log.warning("lease renewal failed", leases=len(leases), error=error.code)
        return None


class Heartbeat(Generic[L]):
    """The heartbeat of one lease: its last renewal, and the signal that its work must stop."""

    def __init__(self, heartbeats: Heartbeats[L], lease: L) -> None:
        """Prepare; renewals start with `watch`."""
        self.lease = lease
        self.is_due_now = False
        self.is_renewed = True
        self.renewed_at = time.monotonic()
        self._heartbeats = heartbeats
        self._stop: asyncio.Future[StopReason] | None = None

    def renew_now(self) -> None:
        """Renew now instead of at the next heartbeat, for example because a cancel was announced."""
        self.is_due_now = True
        self._heartbeats.wake()

    async def watch(self) -> StopReason:
        """Renew the lease until the work must stop, and return why. An unreachable database stops nothing."""
        self._stop = asyncio.get_running_loop().create_future()
        self._heartbeats.join(self)
        try:
            return await self._stop
        finally:
            self._heartbeats.leave(self)

    async def hold(self) -> None:
        """Renew the lease until it is lost or this task is cancelled; requested cancels are ignored."""
        while await self.watch() is not StopReason.LEASE_LOST:
            pass

    def apply_renewal(self, renewal: LeaseRenewal | None) -> None:
        """Apply the result of a renewal; None means that the lease is lost.

        A lost lease or a requested cancel ends `watch`.
        """
        self.is_renewed = renewal is None or renewal.is_renewed
        if self.is_renewed:
            self.renewed_at = time.monotonic()
        if renewal is None:
            self._resolve(StopReason.LEASE_LOST)
        elif renewal.is_cancel_requested:
            self._resolve(StopReason.CANCEL_REQUESTED)

    def _resolve(self, reason: StopReason) -> None:
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(reason)
