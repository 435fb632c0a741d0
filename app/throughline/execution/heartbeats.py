"""Renews leases, whose end the database's clock decides.

One `Heartbeats` renews all leases that it watches in one statement. Turns, side jobs, Slack deliveries and summaries on
demand use it. Each table's own statement says which leases are still valid.
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
"""Between the heartbeats that reach no database: once it is back, leases are renewed before others claim again."""

PAUSES_SECONDS = (0.0, 0.05, 0.2, 0.5)
"""Before each try of a heartbeat: a row that a write of the same work has locked just now is free a moment later."""

L = TypeVar("L", bound=Hashable)
Renew: TypeAlias = Callable[[Collection[L], float], Awaitable[Mapping[L, LeaseRenewal]]]
"""Extends leases by so many seconds and returns what was found of each; those no longer ours are left out."""

log = structlog.get_logger(__name__)


class StopReason(Enum):
    """Why held work is stopped before its end."""

    LEASE_LOST = "lease_lost"
    CANCEL_REQUESTED = "cancel_requested"


class Heartbeats(Generic[L]):
    """Renews all watched leases together, three times a lease: one statement, however many there are."""

    def __init__(self, renew: Renew[L], lease_seconds: float) -> None:
        """Nothing is renewed while no lease is watched."""
        self._renew_leases = renew
        self._lease_seconds = lease_seconds
        self._watched: set[Heartbeat[L]] = set()
        self._woken = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    def of(self, lease: L) -> "Heartbeat[L]":
        """Return the heartbeat of one lease; it beats while it is watched."""
        return Heartbeat(self, lease)

    def join(self, heartbeat: "Heartbeat[L]") -> None:
        """Renew its lease too, from now on."""
        self._watched.add(heartbeat)
        if heartbeat.is_due_now:
            self.wake()
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._renew_while_watched(), name="heartbeat")

    def leave(self, heartbeat: "Heartbeat[L]") -> None:
        """Renew its lease no more."""
        self._watched.discard(heartbeat)
        if not self._watched:
            self.wake()

    def late(self) -> tuple[L, ...]:
        """Return the leases held here that could not be renewed in time: nobody else may have claimed them yet."""
        oldest = time.monotonic() - self._lease_seconds / 2
        return tuple(heartbeat.lease for heartbeat in self._watched if heartbeat.renewed_at < oldest)

    def wake(self) -> None:
        """Renew at once the leases that are due now, or end if none is watched."""
        self._woken.set()

    async def _renew_while_watched(self) -> None:
        loop = asyncio.get_running_loop()
        next_heartbeat = loop.time() + self._lease_seconds / HEARTBEATS_PER_LEASE
        while self._watched:
            try:
                async with asyncio.timeout_at(next_heartbeat):
                    await self._woken.wait()
                    await asyncio.sleep(0)  # however many are due now, the heartbeat of all comes in time
            except TimeoutError:
                is_reached = await self._beat(set(self._watched))
                pause = self._lease_seconds / HEARTBEATS_PER_LEASE
                next_heartbeat = loop.time() + (pause if is_reached else min(AWAY_SECONDS, pause))
            else:
                self._woken.clear()
                await self._beat({heartbeat for heartbeat in self._watched if heartbeat.is_due_now})

    async def _beat(self, heartbeats: "Collection[Heartbeat[L]]") -> bool:
        """Renew these leases, and again those whose rows were locked. Return whether the database was reached.

        A lease that cannot be renewed is kept: whoever claims its row changes the fence, and a heartbeat finds that.
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
        """Return the renewals of the leases that are still ours; None if the database was not reached."""
        with ErrorBoundary(log.error, "heartbeat broke", leases=len(leases)):
            try:
                return await self._renew_leases(leases, self._lease_seconds)
            except TemporaryError as error:
                log.warning("heartbeat failed", leases=len(leases), error=error.code)
        return None


class Heartbeat(Generic[L]):
    """One lease and what is known of it."""

    def __init__(self, heartbeats: Heartbeats[L], lease: L) -> None:
        """Nothing is renewed before `watch`."""
        self.lease = lease
        self.is_due_now = False
        self.is_renewed = True
        self.renewed_at = time.monotonic()
        self._heartbeats = heartbeats
        self._stop: asyncio.Future[StopReason] | None = None

    def renew_now(self) -> None:
        """Ask the database now instead of at the next heartbeat: a cancel was announced, say."""
        self.is_due_now = True
        self._heartbeats.wake()

    async def watch(self) -> StopReason:
        """Return when the work must stop. An unreachable database stops none: it is waited for."""
        self._stop = asyncio.get_running_loop().create_future()
        self._heartbeats.join(self)
        try:
            return await self._stop
        finally:
            self._heartbeats.leave(self)

    async def hold(self) -> None:
        """Renew the lease until it is lost or this is cancelled; a requested cancel comes too late."""
        while await self.watch() is not StopReason.LEASE_LOST:
            pass

    def apply_renewal(self, renewal: LeaseRenewal | None) -> None:
        """Note what a heartbeat found: None if the lease is no longer ours."""
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
