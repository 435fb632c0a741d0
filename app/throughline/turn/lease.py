"""Holding the leases of runs by the database's clock: one heartbeat for all that a process holds."""

import asyncio
import time
from collections.abc import Collection, Mapping
from enum import Enum

import structlog

from throughline.domain.errors import TemporaryError
from throughline.domain.ids import RunId
from throughline.domain.run import Lease, LeaseRenewal
from throughline.execution.error_boundary import ErrorBoundary
from throughline.ports.storage import RunStore

BEATS_PER_LEASE = 3
AWAY_SECONDS = 0.5
"""Between the beats that reach no database: once it is back, leases are renewed before anybody else looks for runs."""

PAUSES_SECONDS = (0.0, 0.05, 0.2, 0.5)
"""Before each try of a beat: a row that a write of the same turn has locked just now is free a moment later."""

log = structlog.get_logger(__name__)


class StopReason(Enum):
    """Why a turn is stopped before its end."""

    LEASE_LOST = "lease_lost"
    CANCEL_REQUESTED = "cancel_requested"


class Heartbeats:
    """Renews the leases of all turns of a process together, three times a lease: one statement, however many."""

    def __init__(self, store: RunStore, lease_seconds: float) -> None:
        """Nothing beats while no lease is watched."""
        self._store = store
        self._lease_seconds = lease_seconds
        self._watched: set[Heartbeat] = set()
        self._news = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    def of(self, lease: Lease) -> "Heartbeat":
        """Return the heartbeat of one lease; it beats while it is watched."""
        return Heartbeat(self, lease)

    def join(self, heartbeat: "Heartbeat") -> None:
        """Beat for it too, from now on."""
        self._watched.add(heartbeat)
        if heartbeat.is_hurried:
            self.look()
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._beat_while_watched(), name="heartbeat")

    def leave(self, heartbeat: "Heartbeat") -> None:
        """Beat for it no more."""
        self._watched.discard(heartbeat)
        if not self._watched:
            self.look()

    def late_runs(self) -> tuple[RunId, ...]:
        """Return the runs held here whose leases could not be renewed in time: nobody else may have taken them yet."""
        oldest = time.monotonic() - self._lease_seconds / 2
        return tuple(heartbeat.lease.run_id for heartbeat in self._watched if heartbeat.renewed_at < oldest)

    def look(self) -> None:
        """Do at once what a heartbeat asks for: beat for one in a hurry, or end where none is left."""
        self._news.set()

    async def _beat_while_watched(self) -> None:
        loop = asyncio.get_running_loop()
        next_beat = loop.time() + self._lease_seconds / BEATS_PER_LEASE
        while self._watched:
            try:
                async with asyncio.timeout_at(next_beat):
                    await self._news.wait()
                    await asyncio.sleep(0)  # however many ask for a beat of their own, that of all comes in time
            except TimeoutError:
                is_reached = await self._beat(set(self._watched))
                pause = self._lease_seconds / BEATS_PER_LEASE
                next_beat = loop.time() + (pause if is_reached else min(AWAY_SECONDS, pause))
            else:
                self._news.clear()
                await self._beat({heartbeat for heartbeat in self._watched if heartbeat.is_hurried})

    async def _beat(self, heartbeats: "Collection[Heartbeat]") -> bool:
        """Beat for these; what a row's lock keeps from being renewed is tried again. Whether the database was reached.

        What cannot be renewed is not given up: whoever takes the run over changes its fence, and a beat finds that.
        """
        for pause in PAUSES_SECONDS:
            if not heartbeats:
                break
            await asyncio.sleep(pause)
            for heartbeat in heartbeats:
                heartbeat.is_hurried = False  # before the question: who hurries meanwhile asks for a further one
            renewals = await self._renew([heartbeat.lease for heartbeat in heartbeats])
            if renewals is None:
                return False
            for heartbeat in heartbeats:
                heartbeat.feel(renewals.get(heartbeat.lease))
            heartbeats = [heartbeat for heartbeat in heartbeats if not heartbeat.is_renewed]
        return True

    async def _renew(self, leases: Collection[Lease]) -> Mapping[Lease, LeaseRenewal] | None:
        """Return the renewals of the leases that are still ours; None where the database was not reached."""
        with ErrorBoundary(log.error, "heartbeat broke", leases=len(leases)):
            try:
                return await self._store.renew(leases, self._lease_seconds)
            except TemporaryError as error:
                log.warning("heartbeat failed", leases=len(leases), error=error.code)
        return None


class Heartbeat:
    """One lease and what is found out about it. `hurry` makes its next beat come at once (a cancel was announced)."""

    def __init__(self, heartbeats: Heartbeats, lease: Lease) -> None:
        """Nothing beats before `watch`."""
        self.lease = lease
        self.is_hurried = False
        self.is_renewed = True
        self.renewed_at = time.monotonic()
        self._heartbeats = heartbeats
        self._stop: asyncio.Future[StopReason] | None = None

    def hurry(self) -> None:
        """Ask the database now instead of at the next beat."""
        self.is_hurried = True
        self._heartbeats.look()

    async def watch(self) -> StopReason:
        """Return when the turn must stop. A database that cannot be reached stops none: it is waited for."""
        self._stop = asyncio.get_running_loop().create_future()
        self._heartbeats.join(self)
        try:
            return await self._stop
        finally:
            self._heartbeats.leave(self)

    async def hold(self) -> None:
        """Renew the lease until it is lost or this is cancelled; who wants the turn to stop comes too late."""
        while await self.watch() is not StopReason.LEASE_LOST:
            pass

    def feel(self, renewal: LeaseRenewal | None) -> None:
        """Take in what a beat found: None where the lease is no longer ours."""
        self.is_renewed = renewal is None or renewal.is_renewed
        if self.is_renewed:
            self.renewed_at = time.monotonic()
        if renewal is None:
            self._tell(StopReason.LEASE_LOST)
        elif renewal.is_cancel_requested:
            self._tell(StopReason.CANCEL_REQUESTED)

    def _tell(self, reason: StopReason) -> None:
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(reason)
