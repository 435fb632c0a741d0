"""Socket Mode: Slack's events over a WebSocket that this process opens, for services without a public address."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import aiohttp
import structlog
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest

from throughline.domain.basic_types import Clock
from throughline.execution.breaker import doubled_backoff
from throughline.execution.error_boundary import ErrorBoundary, running_concurrently
from throughline.slack.bolt import make_client, silent_logger
from throughline.slack.check_payload import MalformedPayload, check_body
from throughline.slack.config import SlackConfig, SlackHealth
from throughline.slack.web_api import retry_after, will_pass, word_of

# One Socket Mode connection, which is opened once and never reconnects. SocketMode opens the next one. The SDK's own
# client retries one address until it works, but an address from Slack is valid for one connection only.

OPENING_SECONDS = 20.0
CLOSING_SECONDS = 1.0
"""Seconds that the closing handshake may take. A peer that goes on sending never completes it."""

MAX_IN_HAND = 200
"""Most messages that are received and not yet handled. Beyond that number, nothing more is read."""

LOST = "connection lost"


class NotOpened(Exception):
    """Error for a connection that cannot be opened. `reason` is Slack's error code, a status or an error's class."""

    def __init__(self, reason: str, *, is_refused: bool = False, delay_seconds: float = 0.0) -> None:
        """Store the reason. `is_refused`: Slack refused, and will do so until somebody changes the setup.

        `delay_seconds`: the pause that Slack demands, 0 without one.
        """
        super().__init__(reason)
        self.reason = reason
        self.is_refused = is_refused
        self.delay_seconds = delay_seconds


class SocketConnection(SocketModeClient):
    """Connection that passes events to a bolt application until Slack or the network ends it."""

    def __init__(self, app: AsyncApp, config: SlackConfig) -> None:
        """Create a connection without opening it. Call `close` even if `open` was never called."""
        logger = silent_logger()
        client = make_client(config, logger)
        super().__init__(config.app_token, logger, client, auto_reconnect_enabled=False, ping_interval=10)
        self.end_reason = ""
        self._app = app
        self._room = asyncio.Semaphore(MAX_IN_HAND)
        self._in_hand: set[asyncio.Task[None]] = set()
        self.socket_mode_request_listeners.append(self._answer)

    async def open(self, address: str = "") -> None:
        """Connect to the unused `address`, or to one requested from Slack if it is ''. Raises NotOpened."""
        try:
            async with asyncio.timeout(OPENING_SECONDS):
                await self._connect_to(address or await self._address())
        except aiohttp.WSServerHandshakeError as error:
            raise NotOpened(f"status {error.status}", delay_seconds=retry_after(error.headers)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotOpened(type(error).__name__) from None

    async def is_over(self) -> bool:
        """Return whether Slack asked for a new connection, or this one is closed or does not answer pings."""
        return bool(self.end_reason) or not await self.is_connected()

    async def enqueue_message(self, message: str) -> None:
        """Handle a message in a task of its own. Wait first if too many messages are being handled.

        The SDK's own method uses an unlimited queue and starts a task for each message.
        """
        await self._room.acquire()
        task = asyncio.ensure_future(self._deal_with(message))
        self._in_hand.add(task)
        task.add_done_callback(self._done_with)

    async def disconnect(self) -> None:
        """Close the connection within CLOSING_SECONDS, whatever the peer does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await super().disconnect()  # type: ignore[no-untyped-call]  # the SDK left it without types

    async def run_message_listeners(self, message: dict[str, object], raw_message: str) -> None:
        """Record that Slack asks for a new connection.

        The SDK would close this connection before the new one is open.
        """
        if message.get("type") == "disconnect":
            self.end_reason = str(message.get("reason") or LOST)
        else:
            await super().run_message_listeners(message, raw_message)

    async def _deal_with(self, raw_message: str) -> None:
        try:
            message = json.loads(raw_message)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            await self.run_message_listeners(message, raw_message)
        else:
            log.warning("message from slack rejected", reason="not a JSON object")

    def _done_with(self, task: asyncio.Task[None]) -> None:
        self._in_hand.discard(task)
        self._room.release()

    async def _address(self) -> str:
        try:
            answer = await self.web_client.apps_connections_open(app_token=self.app_token)
        except SlackApiError as error:
            reason = word_of(error) or "an answer that is not Slack's"
            delay_seconds = retry_after(getattr(error.response, "headers", None))  # an unreadable answer may have none
            raise NotOpened(reason, is_refused=not will_pass(error), delay_seconds=delay_seconds) from None
        return str(answer["url"])

    async def _connect_to(self, address: str) -> None:
        """Connect as the SDK does, and start its two tasks: one receives messages, one sends pings."""
        ssl = self.web_client.ssl
        self.current_session = await self.aiohttp_client_session.ws_connect(
            address, autoping=False, heartbeat=self.ping_interval, proxy=self.proxy, ssl=True if ssl is None else ssl
        )
        self.current_session_monitor = asyncio.ensure_future(self.monitor_current_session())
        self.message_receiver = asyncio.ensure_future(self.receive_messages())

    async def _answer(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        started = time.time()
        try:
            check_body(request.payload)
        except MalformedPayload as error:
            log.warning("request from slack rejected", reason=str(error))
            return
        response = await run_async_bolt_app(self._app, request)
        await send_async_response(client, request, response, started)


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
