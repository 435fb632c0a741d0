"""One Socket Mode connection, which is opened once and never reconnects. `socket_mode.py` opens the next one.

The SDK's own client retries one address until it works, but an address from Slack is valid for one connection only.
"""

import asyncio
import json
import time
from contextlib import suppress

import aiohttp
import structlog
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest

from throughline.slack.bolt import make_client, silent_logger
from throughline.slack.check_payload import MalformedPayload, check_body
from throughline.slack.config import SlackConfig
from throughline.slack.slack_errors import retry_after, will_pass, word_of

OPENING_SECONDS = 20.0
CLOSING_SECONDS = 1.0
"""Seconds that the closing handshake may take. A peer that goes on sending never completes it."""

MAX_IN_HAND = 200
"""Most messages that are received and not yet handled. Beyond that number, nothing more is read."""

LOST = "connection lost"
log = structlog.get_logger(__name__)


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
