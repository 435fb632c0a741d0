"""The notifier: wakes tasks that follow a run or wait for work, and passes on requests to cancel a run.

Readers in the same process get the events themselves. Other processes get run ids and flags by PostgreSQL's NOTIFY and
read the events from the database.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # ships no types
import structlog

from throughline.db.connection.address import Address
from throughline.db.connection.connector import Connector
from throughline.db.connection.signals import QueueSignal, RunSignal, Signal
from throughline.domain.basic_types import RunId
from throughline.domain.events import NewEvent, RunEvent
from throughline.ports.storage import Seen

CHANNEL = "throughline"
IDS_PER_PAYLOAD = 200
"""Most run ids in a payload: PostgreSQL allows payloads of up to 7,999 bytes, and an id takes 33."""


@dataclass(frozen=True, slots=True)
class Notification:
    """The changes that one notification reports.

    `events`: runs with new events. `ends`: the runs among `events` that may have ended or were erased. `cancels`: runs
    that must stop. `has_work`: a run is queued. `has_jobs`: a side job can be claimed.
    """

    events: frozenset[RunId] = frozenset()
    cancels: frozenset[RunId] = frozenset()
    has_work: bool = False
    ends: frozenset[RunId] = frozenset()
    has_jobs: bool = False


def write_payloads(notification: Notification) -> tuple[str, ...]:
    """Return a notification's payloads, of the form `e:<hex>,<hex>`, `d:<hex>` (done), `c:<hex>`, `w:` and `j:`."""
    payloads = [f"e:{chunk}" for chunk in _chunks(notification.events)]
    payloads += [f"d:{chunk}" for chunk in _chunks(notification.ends)]
    payloads += [f"c:{chunk}" for chunk in _chunks(notification.cancels)]
    payloads += ["w:"] * notification.has_work + ["j:"] * notification.has_jobs
    return tuple(payloads)


def read_payload(payload: str) -> Notification:
    """Return the notification in a payload; an empty one if the payload has another format."""
    kind, _, ids = payload.partition(":")
    try:
        run_ids = frozenset(RunId(UUID(hex=run_id)) for run_id in ids.split(",") if run_id)
    except ValueError:
        return Notification()
    meanings = {
        "e": Notification(events=run_ids),
        "d": Notification(ends=run_ids),
        "c": Notification(cancels=run_ids),
        "w": Notification(has_work=True),
        "j": Notification(has_jobs=True),
    }
    return meanings.get(kind, Notification())


def _chunks(run_ids: Iterable[RunId]) -> Iterator[str]:
    names = sorted(run_id.hex for run_id in run_ids)
    for start in range(0, len(names), IDS_PER_PAYLOAD):
        yield ",".join(names[start : start + IDS_PER_PAYLOAD])


FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
CHECK_SECONDS = 15.0
ANSWER_TIMEOUT_SECONDS = 5.0
_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
log = structlog.get_logger(__name__)


class Listener:
    """A connection that listens on the notification channel; a loss is noticed at once or by a check every 15 s."""

    def __init__(
        self, address: Address, *, on_payload: Callable[[str], None], on_connected: Callable[[], None]
    ) -> None:
        """`on_payload` gets the payloads of other connections; `on_connected` is called after each new connection."""
        self._connector = Connector(address)
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
            connection = await self._connector.connect(
                command_timeout=ANSWER_TIMEOUT_SECONDS, server_settings={"application_name": "throughline listener"}
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


GATHER_SECONDS = 0.01


OnCancel: TypeAlias = Callable[[RunId], None]


class Notifier:
    """The notifier for readers of runs, for loops that claim work and for processes that execute a run.

    It reaches this process and all others. `work` is woken when a run waits for a worker, `jobs` when a side job was
    queued or put back. One connection outside the pool listens and notifies.

    Unless it `listens`, there is no such connection: it reaches this process, and the others poll.
    """

    def __init__(self, address: Address, *, listens: bool = True) -> None:
        """Prepare the notifier; `start` opens the connection."""
        self.listens = listens
        self.work = QueueSignal(self._notify_of_work, polls_alone=not listens)
        self.jobs = Signal(polls_alone=not listens)
        self._listener = Listener(address, on_payload=self._receive_payload, on_connected=self._wake_all)
        self._readers: defaultdict[RunId, set[RunSignal]] = defaultdict(set)
        self._on_cancel: list[OnCancel] = []
        self._events: set[RunId] = set()
        self._ends: set[RunId] = set()
        self._cancels: set[RunId] = set()
        self._has_work = self._has_jobs = False
        self._telling: asyncio.Task[None] | None = None

    @property
    def is_listening(self) -> bool:
        """Whether notifications of other processes arrive; if False, changes are found by polling only."""
        return self._listener.is_connected

    @property
    def is_as_set(self) -> bool:
        """Whether notifications of other processes arrive, or are not expected since the service polls alone."""
        return self.is_listening or not self.listens

    @property
    def has_readers(self) -> bool:
        """Whether any reader in this process follows a run."""
        return bool(self._readers)

    def seen_by_readers(self) -> frozenset[Seen]:
        """Return the run, last event number and status that each waiting reader in this process has seen."""
        return frozenset(
            signal.seen for readers in self._readers.values() for signal in readers if signal.seen is not None
        )

    async def start(self) -> None:
        """Start listening; return after the first connection attempt, and retry in the background."""
        if self.listens:
            await self._listener.start()

    async def close(self) -> None:
        """Send the pending notifications and stop listening."""
        if self._telling is not None:
            await asyncio.gather(self._telling, return_exceptions=True)
        await self._listener.close()

    @asynccontextmanager
    async def subscribe(self, run_id: RunId, *, ends_only: bool = False) -> AsyncGenerator[RunSignal]:
        """Yield a signal that is set when the run has new events, or with `ends_only` only if it may have ended."""
        signal = RunSignal(ends_only=ends_only)
        self._readers[run_id].add(signal)
        try:
            yield signal
        finally:
            self._readers[run_id].discard(signal)
            if not self._readers[run_id]:
                del self._readers[run_id]

    def on_cancel(self, callback: OnCancel) -> None:
        """Register `callback`; it is called with the id of every run whose cancel is requested."""
        self._on_cancel.append(callback)

    def wake_runs(self, run_ids: Iterable[RunId]) -> None:
        """Wake the readers of these runs in this process."""
        for run_id in run_ids:
            for signal in self._readers.get(run_id, ()):
                signal.wake()

    def wake_readers(self) -> None:
        """Wake all readers in this process."""
        self.wake_runs(tuple(self._readers))

    def announce_events(self, run_id: RunId, events: Sequence[NewEvent] = ()) -> None:
        """Notify all processes that the run has new events, and give the events to readers in this process.

        Returns at once. Without events it announces a change of the run's row, which may mean that the run has ended.
        """
        brought = [RunEvent(run_id, new.seq, new.event) for new in events]
        may_have_ended = not brought or brought[-1].is_last or brought[-1].is_pause
        for signal in self._readers.get(run_id, ()):
            if may_have_ended or not signal.ends_only:
                signal.bring(brought)
        self._events.add(run_id)
        if may_have_ended:
            self._ends.add(run_id)
        self._send_soon()

    def announce_work(self) -> None:
        """Notify the worker of this process that a run is queued, or all others if it cannot claim. Returns at once."""
        self.work.announce()

    def _notify_of_work(self) -> None:
        self._has_work = True
        self._send_soon()

    def announce_jobs(self) -> None:
        """Notify all processes that a side job can be claimed. Call it after the commit. Returns at once."""
        self.jobs.wake()
        self._has_jobs = True
        self._send_soon()

    def announce_cancel(self, run_id: RunId) -> None:
        """Call this process's `on_cancel` callbacks, and notify all other processes that the run must stop.

        Returns at once.
        """
        self._cancel(run_id)
        self._cancels.add(run_id)
        self._send_soon()

    def _send_soon(self) -> None:
        if not self.listens:
            self._take_pending()
        elif self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._send(), name="notify other processes")

    async def _send(self) -> None:
        """Send pending notifications until there are none, collecting them for GATHER_SECONDS per statement."""
        while self._events or self._cancels or self._has_work or self._has_jobs:
            await asyncio.sleep(GATHER_SECONDS)
            await self._listener.send(write_payloads(self._take_pending()))

    def _take_pending(self) -> Notification:
        """Return what other processes have not been notified of yet, and forget it."""
        notification = Notification(
            events=frozenset(self._events),
            cancels=frozenset(self._cancels),
            has_work=self._has_work,
            ends=frozenset(self._ends),
            has_jobs=self._has_jobs,
        )
        self._events.clear()
        self._ends.clear()
        self._cancels.clear()
        self._has_work = self._has_jobs = False
        return notification

    def _receive_payload(self, payload: str) -> None:
        notification = read_payload(payload)
        self._wake_followers(notification.events)
        self.wake_runs(notification.ends)
        for run_id in notification.cancels:
            self._cancel(run_id)
        if notification.has_work:
            self.work.wake()
        if notification.has_jobs:
            self.jobs.wake()

    def _wake_followers(self, run_ids: Iterable[RunId]) -> None:
        for run_id in run_ids:
            for signal in self._readers.get(run_id, ()):
                if not signal.ends_only:
                    signal.wake()

    def _cancel(self, run_id: RunId) -> None:
        for callback in self._on_cancel:
            callback(run_id)

    def _wake_all(self) -> None:
        """Wake all waiters after a connection gap, since notifications may have been missed."""
        self.work.wake()
        self.jobs.wake()
        self.wake_readers()
