"""Takes deliveries from the outbox, whole answers first, and keeps their leases while senders are at work."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from throughline.db.slack.outbox import Delivery, SlackOutbox
from throughline.domain.errors import LeaseLost, TemporaryError, ThroughlineError
from throughline.execution.error_boundary import ErrorBoundary
from throughline.execution.outcome import Outcome, Raised, Returned, outcome_of_awaiting
from throughline.execution.pauses import doubled_pause
from throughline.execution.running_beside import running_beside
from throughline.slack.answer_sender import AnswerSender
from throughline.slack.refusals import TOKEN_ERRORS, TOKEN_REFUSED, SlackRefused

POLL_SECONDS = 1.0
READY_PLACES = 10
"""Beyond `concurrency`, for what is whole already: it must not wait behind answers that grow, or that nobody writes."""

MOST_ATTEMPTS = 20
"""For errors that nobody expected: our own faults."""

LONGEST_WAIT_SECONDS = 24 * 3_600.0
"""How old an answer may get while Slack is away, or our tokens are not accepted."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 300.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DispatcherConfig:
    """Who delivers, how much at once, and how long a silent process keeps what it took."""

    worker: str
    concurrency: int
    lease_seconds: float


class Dispatcher:
    """Delivers until it is closed; what it has not ended is then given back at once."""

    def __init__(
        self,
        outbox: SlackOutbox,
        sender: AnswerSender,
        config: DispatcherConfig,
        on_token_refused: Callable[[str], None] | None = None,
    ) -> None:
        """Take from `outbox`, deliver through `sender`; `on_token_refused` is told Slack's word for it."""
        self._outbox = outbox
        self._sender = sender
        self._config = config
        self._on_token_refused = on_token_refused
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Deliver inside the block."""
        try:
            async with running_beside(self.run(), "deliver to slack"):
                yield
        finally:
            await self._close()

    async def run(self) -> None:
        """Take and deliver until cancelled."""
        while True:
            if not await self._take():
                await self._outbox.waiting.wait(POLL_SECONDS)

    async def _take(self) -> bool:
        """Whether something was taken; an unreachable database is nothing taken."""
        free = self._config.concurrency - len(self._tasks)
        if free + READY_PLACES <= 0:
            return False
        taken = await self._claim(free if free > 0 else free + READY_PLACES, only_ready=free <= 0)
        for delivery in taken:
            task = asyncio.create_task(self._deliver(delivery), name=f"deliver {delivery.lease.id}")
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return bool(taken)

    async def _claim(self, most: int, *, only_ready: bool) -> Sequence[Delivery]:
        config = self._config
        with ErrorBoundary(log.error, "taking slack deliveries broke"):
            try:
                return await self._outbox.claim(
                    config.worker, limit=most, lease_seconds=config.lease_seconds, only_ready=only_ready
                )
            except ThroughlineError as error:
                log.warning("slack deliveries could not be taken", error=error.code)
        return ()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._outbox.waiting.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a slack delivery ended without a record", error=type(error).__name__)

    async def _deliver(self, delivery: Delivery) -> None:
        work = asyncio.create_task(self._sender.deliver(delivery))
        try:
            match await self._outcome(delivery, work):
                case Raised(LeaseLost()):
                    await self._lost(delivery, work)
                case Raised(error):
                    await self._failed(delivery, error)
                case Returned():
                    pass
        finally:
            await _stop(work)

    async def _outcome(self, delivery: Delivery, work: "asyncio.Task[None]") -> Outcome[None]:
        """Wait for the work and return what came of it; who is told to stop gives the delivery back."""
        try:
            return await outcome_of_awaiting(self._with_heartbeats(delivery, work))
        except asyncio.CancelledError:
            await _stop(work)
            await self._give_back(delivery, delay_seconds=0)
            raise

    async def _with_heartbeats(self, delivery: Delivery, work: "asyncio.Task[None]") -> None:
        while not work.done():
            await asyncio.wait({work}, timeout=self._config.lease_seconds / 3)
            if not work.done():
                await self._outbox.heartbeat(delivery.lease, self._config.lease_seconds)
        await work

    async def _lost(self, delivery: Delivery, work: "asyncio.Task[None]") -> None:
        """Stop; where the session was erased, the sender has still to close what it left open in Slack."""
        try:
            if await self._outbox.is_erased(delivery):
                await asyncio.wait({work}, timeout=self._config.lease_seconds / 3)
                return
        except ThroughlineError:
            log.debug("not known whether a slack delivery was erased")
        log.warning("slack delivery lost to another process", delivery=str(delivery.lease.id))

    async def _failed(self, delivery: Delivery, error: BaseException) -> None:
        code = _code(error)
        report = log.error if _needs_operator(error) or not isinstance(error, ThroughlineError) else log.warning
        report("slack delivery failed", error=code, attempt=delivery.attempt, delivery=str(delivery.lease.id))
        if self._on_token_refused is not None and isinstance(error, SlackRefused) and code in TOKEN_REFUSED:
            self._on_token_refused(code)
        if _is_over(delivery, error):
            if await self._finished(delivery, code):
                await self._sender.tell_failed(delivery, _reason(error))
        else:
            await self._give_back(delivery, delay_seconds=_pause(delivery, error), error=code)

    async def _finished(self, delivery: Delivery, error: str) -> bool:
        try:
            await self._outbox.finish(delivery.lease, error=error)
        except ThroughlineError:
            log.warning("slack delivery is left to its lease", delivery=str(delivery.lease.id))
            return False
        return True

    async def _give_back(self, delivery: Delivery, *, delay_seconds: float, error: str = "") -> None:
        try:
            await self._outbox.put_back(delivery.lease, delay_seconds=delay_seconds, error=error)
        except ThroughlineError:
            log.warning("slack delivery is left to its lease", delivery=str(delivery.lease.id))

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _needs_operator(error: BaseException) -> bool:
    return isinstance(error, SlackRefused) and error.error in TOKEN_ERRORS


def _is_over(delivery: Delivery, error: BaseException) -> bool:
    """Whether to give up: what passes is tried for a day, however often; what nobody expected a few times."""
    if isinstance(error, TemporaryError) or _needs_operator(error):
        return delivery.ready_seconds >= LONGEST_WAIT_SECONDS
    return isinstance(error, SlackRefused) or delivery.attempt >= MOST_ATTEMPTS


def _pause(delivery: Delivery, error: BaseException) -> float:
    """Return for how long to leave the delivery alone: longer each time, and for as long as Slack asks."""
    pause = doubled_pause(delivery.attempt, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    asked = error.delay_seconds if isinstance(error, TemporaryError) else None
    return max(pause, asked or 0.0)


def _reason(error: BaseException) -> str:
    """Return what a person is told; of what Slack says only its word for it."""
    if isinstance(error, SlackRefused):
        return f"Slack refused it (`{error.error}`)"
    return "Slack was not to be reached for a day" if isinstance(error, TemporaryError) else "something went wrong"


def _code(error: BaseException) -> str:
    if isinstance(error, SlackRefused):
        return error.error
    return error.code if isinstance(error, ThroughlineError) else type(error).__name__
