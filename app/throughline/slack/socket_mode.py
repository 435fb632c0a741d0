"""Socket Mode: Slack's events over a WebSocket that this process opens, for services without a public address."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog
from slack_bolt.async_app import AsyncApp

from throughline.domain.clock import Clock
from throughline.execution.backoff import doubled_backoff
from throughline.execution.error_boundary import ErrorBoundary
from throughline.execution.running_concurrently import running_concurrently
from throughline.slack.config import SlackConfig
from throughline.slack.health import SlackHealth
from throughline.slack.socket_client import LOST, NotOpened, SocketConnection

LOOK_SECONDS = 1.0
DISCONNECTED_SECONDS = 20.0
"""Seconds for which a missing connection is not reported. Slack ends connections often, and a new one opens soon."""

ACKNOWLEDGED_SECONDS = 3.0
"""Seconds that Slack waits for the acknowledgement of an event. A replaced connection stays open that long."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
LONGEST_DELAY_SECONDS = 300.0
"""Longest pause demanded by Slack that is respected. Slack's own pauses are at most a minute."""

log = structlog.get_logger(__name__)


class SocketMode:
    """Loop that keeps a connection open: it opens a new one when one ends, and reports when that fails."""

    def __init__(
        self, app: AsyncApp, config: SlackConfig, clock: Clock, health: SlackHealth, first_address: str = ""
    ) -> None:
        """Pass events to `app`, and record in `health` whether events can arrive.

        `first_address`: an unused address from Slack, '' if there is none.
        """
        self._app = app
        self._config = config
        self._clock = clock
        self._health = health
        self._lost_at = clock.monotonic()
        self._is_reported = False
        self._failures = 0
        self._asked_pause = 0.0
        self._address = first_address
        self._open: list[SocketConnection] = []

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Receive events while the context is open."""
        try:
            async with running_concurrently(self.run, "listen to slack"):
                yield
        finally:
            await self._close_all_except()

    async def run(self) -> None:
        """Keep a connection until cancelled."""
        while True:
            with ErrorBoundary(log.error, task="slack socket mode") as boundary:
                try:
                    await self._watch(await self._opened())
                except NotOpened as error:
                    self._not_opened(error)
            self._failures += boundary.error is not None
            await self._clock.sleep(self._pause())

    async def _opened(self) -> SocketConnection:
        """Return a newly opened connection.

        The previous connection stays open for a while, for events that are still being acknowledged over it.
        """
        await self._close_dead()
        connection = SocketConnection(self._app, self._config)
        self._open.append(connection)
        address, self._address = self._address, ""
        try:
            await connection.open(address)
        except BaseException:
            await self._close(connection)  # no other one: Slack may still send over the previous
            raise
        await self._close_all_except(*self._open[-2:])
        self._asked_pause = 0.0
        self._health.set_connected()
        self._is_reported = False
        log.info("slack connected")
        return connection

    def _not_opened(self, error: NotOpened) -> None:
        self._failures += 1
        self._asked_pause = min(error.delay_seconds, LONGEST_DELAY_SECONDS)
        self._report_disconnected(error.reason, at_once=error.is_refused)

    async def _watch(self, connection: SocketConnection) -> None:
        """Wait until the connection is over. It counts as a failure if it lasted less than DISCONNECTED_SECONDS."""
        opened_at = self._clock.monotonic()
        while not await connection.is_over():
            await self._clock.sleep(LOOK_SECONDS)
            if self._clock.monotonic() - opened_at >= ACKNOWLEDGED_SECONDS:
                await self._close_all_except(connection)
        reason, now = connection.end_reason or LOST, self._clock.monotonic()
        log.info("slack connection closed", reason=reason)
        if now - opened_at >= DISCONNECTED_SECONDS:
            self._failures, self._lost_at = 0, now
        else:
            self._failures += 1
            self._report_disconnected(reason)

    def _pause(self) -> float:
        """Return the seconds until the next attempt. They are 0 after a connection that lasted.

        After failures they grow, and they are at least what Slack demands.
        """
        if self._failures == 0:
            return 0.0
        return max(doubled_backoff(self._failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS), self._asked_pause)

    def _report_disconnected(self, reason: str, *, at_once: bool = False) -> None:
        """Record and log that no events can arrive, once DISCONNECTED_SECONDS have passed, or now if `at_once`.

        It is logged once until a connection opens.
        """
        if not (self._is_reported or at_once or self._clock.monotonic() - self._lost_at >= DISCONNECTED_SECONDS):
            return
        self._health.set_disconnected(f"not connected, {reason}")
        if not self._is_reported:
            self._is_reported = True
            log.warning("slack disconnected, no events arrive", reason=reason)

    async def _close_all_except(self, *kept: SocketConnection) -> None:
        for connection in [one for one in self._open if one not in kept]:
            await self._close(connection)

    async def _close_dead(self) -> None:
        """Close the connections that Slack or the network has ended."""
        for connection in list(self._open):
            if not await connection.is_connected():
                await self._close(connection)

    async def _close(self, connection: SocketConnection) -> None:
        await connection.close()  # type: ignore[no-untyped-call]  # the SDK left it without types
        self._open.remove(connection)
