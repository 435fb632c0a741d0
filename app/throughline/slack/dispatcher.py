"""Delivery of answers to Slack: what is claimed from the outbox, whole answers first, and what becomes of failures."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import structlog

from throughline.db.slack.outbox import Delivery, DeliveryClaim, SlackOutbox
from throughline.domain.errors import LeaseLost, TemporaryError, ThroughlineError
from throughline.domain.lease import RowLease
from throughline.execution.backoff import doubled_backoff
from throughline.execution.error_boundary import ErrorBoundary
from throughline.execution.heartbeats import Heartbeat, Heartbeats
from throughline.execution.lease_loop import LeaseLoop, LoopConfig, work_until_lost
from throughline.execution.outcome import Raised, Returned, outcome_of_awaiting
from throughline.slack.answer_sender import AnswerSender
from throughline.slack.slack_errors import TOKEN_ERRORS, TOKEN_REFUSED, SlackRefused

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
        heartbeats = Heartbeats(outbox.renew, config.lease_seconds)
        self._loop: LeaseLoop[Delivery] = LeaseLoop(self, heartbeats, outbox.waiting, LoopConfig(POLL_SECONDS))

    def running(self) -> AbstractAsyncContextManager[None]:
        """Deliver inside the block."""
        return self._loop.running("deliver to slack")

    async def claim(self, late: Sequence[RowLease]) -> Sequence[Delivery]:
        """Take as many deliveries as there are places for, whole ones alone if only their places are left."""
        free = self._config.concurrency - len(self._loop.held)
        if free + READY_PLACES <= 0:
            return ()
        claim = DeliveryClaim(
            worker=self._config.worker,
            limit=free if free > 0 else free + READY_PLACES,
            lease_seconds=self._config.lease_seconds,
            only_ready=free <= 0,
            held=[lease.id for lease in late],
        )
        return await self._outbox.claim(claim)

    async def perform(self, claimed: Delivery, heartbeat: Heartbeat[RowLease]) -> None:
        """Deliver; what fails is put back, given up or left to the process that has the lease by now."""
        await work_until_lost(self._deliver(claimed), heartbeat, lambda: self._seconds_after_loss(claimed))

    async def _deliver(self, claimed: Delivery) -> None:
        match await outcome_of_awaiting(self._sender.deliver(claimed)):
            case Raised(LeaseLost()):
                log.warning("slack delivery lost to another process", delivery=str(claimed.lease.id))
            case Raised(error):
                await self._failed(claimed, error)
            case Returned():
                pass

    async def put_back(self, claimed: Delivery) -> None:
        """Put the delivery back as never tried. Raises LeaseLost, DatabaseUnavailable."""
        await self._outbox.put_back(claimed.lease, delay_seconds=0)

    def ended(self, _claimed: Delivery) -> None:
        """Have the next deliveries claimed: there is a place for one."""
        self._outbox.waiting.wake()

    async def _seconds_after_loss(self, claimed: Delivery) -> float:
        """Return how long the sender may close what it left open in Slack, where no other process delivers."""
        with ErrorBoundary(log.debug, "not known whether a slack delivery is over"):
            return self._config.lease_seconds / 3 if await self._outbox.is_over(claimed.lease) else 0.0
        return 0.0

    async def _failed(self, delivery: Delivery, error: BaseException) -> None:
        code = _code(error)
        report = log.error if _needs_operator(error) or not isinstance(error, ThroughlineError) else log.warning
        report("slack delivery failed", error=code, attempt=delivery.attempt, delivery=str(delivery.lease.id))
        if self._on_token_refused is not None and isinstance(error, SlackRefused) and code in TOKEN_REFUSED:
            self._on_token_refused(code)
        try:
            if _is_over(delivery, error):
                await self._sender.tell_failed(delivery, _reason(error))  # before the lease ends with the delivery
                await self._outbox.finish(delivery.lease, error=code)
            else:
                await self._outbox.put_back(delivery.lease, delay_seconds=_pause(delivery, error), error=code)
        except ThroughlineError:
            log.warning("slack delivery is left to its lease", delivery=str(delivery.lease.id))


def _needs_operator(error: BaseException) -> bool:
    return isinstance(error, SlackRefused) and error.error in TOKEN_ERRORS


def _is_over(delivery: Delivery, error: BaseException) -> bool:
    """Whether to give up: what passes is tried for a day, however often; what nobody expected a few times."""
    if isinstance(error, TemporaryError) or _needs_operator(error):
        return delivery.ready_seconds >= LONGEST_WAIT_SECONDS
    return isinstance(error, SlackRefused) or delivery.attempt >= MOST_ATTEMPTS


def _pause(delivery: Delivery, error: BaseException) -> float:
    """Return for how long to leave the delivery alone: longer each time, and for as long as Slack asks."""
    pause = doubled_backoff(delivery.attempt, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
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
