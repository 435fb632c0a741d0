"""The connection for notifications, outside the pool: it listens, sends, and reconnects after every loss."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # ships no types
import structlog

from throughline.db.connection.address import Address
from throughline.db.connection.notification import CHANNEL
from throughline.db.connection.pool import CONNECT_TIMEOUT_SECONDS

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
CHECK_SECONDS = 15.0
ANSWER_TIMEOUT_SECONDS = 5.0
_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)
log = structlog.get_logger(__name__)


class Listener:
    """A connection that listens on the notification channel; a loss is noticed at once or by a check every 15 s."""

    def __init__(
        self, address: Address, *, on_payload: Callable[[str], None], on_connected: Callable[[], None]
    ) -> None:
        """`on_payload` gets the payloads of other connections; `on_connected` is called after each new connection."""
        self._address = address
        self._on_payload = on_payload
        self._on_connected = on_connected
        self._connection: Any = None  # asyncpg has no types
        self._sending = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open, so that payloads arrive."""
        return self._connection is not None and not self._connection.is_closed()

    async def start(self) -> None:
        """Try to connect once, then keep the connection up in the background."""
        await self._try_to_connect()
        self._keeper = asyncio.create_task(self._keep(), name="listen for notifications")

    async def close(self) -> None:
        """Stop reconnecting and disconnect."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._drop()

    async def send(self, payloads: Sequence[str]) -> None:
        """Send the payloads to all processes in one statement.

        Payloads are dropped if there is no connection or the statement fails, since the other processes also poll.
        """
        if not self.is_connected or not payloads:
            return
        try:
            async with self._sending:
                await self._connection.execute(
                    "select pg_notify($1, payload) from unnest($2::text[]) as payload",
                    CHANNEL,
                    list(payloads),
                    timeout=ANSWER_TIMEOUT_SECONDS,
                )
        except _ERRORS as error:
            log.info("notification not sent, receivers poll", error=type(error).__name__)

    async def _keep(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            if self.is_connected:
                await self._until_lost()
                pause = FIRST_PAUSE_SECONDS
                await self._drop()
            await asyncio.sleep(pause)
            if not await self._try_to_connect():
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _until_lost(self) -> None:
        """Wait until the connection is closed or no longer answers."""
        lost = asyncio.Event()
        self._connection.add_termination_listener(lambda _: lost.set())
        while self.is_connected:
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await lost.wait()
            except TimeoutError:
                if not await self._answers():
                    break
        log.warning("notification listener disconnected, readers poll meanwhile")

    async def _answers(self) -> bool:
        try:
            async with self._sending:
                await self._connection.execute("select 1", timeout=ANSWER_TIMEOUT_SECONDS)
        except _ERRORS:
            return False
        return True

    async def _try_to_connect(self) -> bool:
        connection = None
        try:
            connection = await asyncpg.connect(
                **self._address.arguments(),
                timeout=CONNECT_TIMEOUT_SECONDS,
                server_settings={"application_name": "throughline listener"},
            )
            await connection.add_listener(CHANNEL, self._receive)
        except _ERRORS as error:
            log.info("notification listener could not connect, retried later", error=type(error).__name__)
            if connection is not None:
                connection.terminate()
            return False
        self._connection = connection
        self._on_connected()
        return True

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.close(timeout=ANSWER_TIMEOUT_SECONDS)
        except _ERRORS:
            connection.terminate()

    def _receive(self, _connection: object, process_id: int, _channel: str, payload: object) -> None:
        """Pass a payload that another connection sent to `on_payload`, and ignore this connection's own payloads.

        The sender in this process has already woken its own waiting tasks.
        """
        if self._connection is not None and process_id != self._connection.get_server_pid():
            self._on_payload(str(payload))
