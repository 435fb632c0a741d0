"""Holding the lease of a run: a heartbeat by the database's clock, and what it finds out."""

import asyncio
from enum import Enum

import structlog

from app.domain.errors import TemporaryError
from app.domain.run import Lease
from app.turn.ports import Pulse, RunStore

BEATS_PER_LEASE = 3
log = structlog.get_logger(__name__)


class StopReason(Enum):
    """Why a turn is stopped before its end."""

    LEASE_LOST = "lease_lost"
    CANCEL_REQUESTED = "cancel_requested"


class Heartbeat:
    """Renews one lease until told to stop. `hurry` makes the next beat come at once (a cancel was announced)."""

    def __init__(self, store: RunStore, lease: Lease, lease_seconds: float) -> None:
        """Beat three times per lease."""
        self._store = store
        self._lease = lease
        self._lease_seconds = lease_seconds
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Ask the database now instead of at the next beat."""
        self._hurry.set()

    async def watch(self) -> StopReason:
        """Return when the turn must stop. Failing to reach the database for a whole lease counts as losing it."""
        interval = self._lease_seconds / BEATS_PER_LEASE
        missed = 0
        while True:
            await self._wait(interval)
            pulse = await self._beat()
            missed = 0 if pulse is not None else missed + 1
            if missed >= BEATS_PER_LEASE or (pulse is not None and not pulse.is_ours):
                return StopReason.LEASE_LOST
            if pulse is not None and pulse.is_cancel_requested:
                return StopReason.CANCEL_REQUESTED

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()

    async def _beat(self) -> Pulse | None:
        try:
            return await self._store.heartbeat(self._lease, self._lease_seconds)
        except TemporaryError as error:
            log.warning("heartbeat failed", run_id=str(self._lease.run_id), error=error.code)
            return None
