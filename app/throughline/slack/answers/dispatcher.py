"""Delivery of answers to Slack: deliveries are claimed from the outbox, complete answers first.

Failed deliveries are retried or given up here.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import structlog

from throughline.domain.errors import LeaseLost, TemporaryError, ThroughlineError
from throughline.domain.run import RowLease
from throughline.execution.breaker import doubled_backoff
from throughline.execution.error_boundary import ErrorBoundary, Raised, Returned, outcome_of_awaiting
from throughline.execution.lease_loop import Claims, Heartbeat, Heartbeats, LeaseLoop, LoopConfig, work_until_lost
from throughline.slack.answers.answer_sender import AnswerSender
from throughline.slack.store.outbox import Delivery, DeliveryClaim, SlackOutbox
from throughline.slack.web_api import TOKEN_ERRORS, TOKEN_REFUSED, SlackRefused

POLL_SECONDS = 1.0
READY_PLACES = 10
"""Concurrent deliveries allowed in addition to `concurrency`, reserved for complete answers.

A complete answer must not wait behind answers that still grow or whose run no worker has taken.
"""

MOST_ATTEMPTS = 20
"""Most attempts of a delivery that fails with unexpected errors, which are defects of this service."""

LONGEST_WAIT_SECONDS = 24 * 3_600.0
"""Age in seconds at which a complete answer is given up if Slack is unreachable or does not accept the tokens."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 300.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DispatcherConfig:
    """Name of the worker, number of concurrent deliveries, and duration of the lease on each of them."""

    worker: str
    concurrency: int
    lease_seconds: float


class Dispatcher:
    """Loop that delivers answers until it is closed. Unfinished deliveries are then put back at once."""

    def __init__(
        self,
        outbox: SlackOutbox,
        sender: AnswerSender,
        config: DispatcherConfig,
        on_token_refused: Callable[[str], None] | None = None,
    ) -> None:
        """Claim from `outbox` and deliver through `sender`. `on_token_refused` is called with Slack's error code."""
        self._outbox = outbox
        self._sender = sender
        self._config = config
        self._on_token_refused = on_token_refused
        heartbeats = Heartbeats(outbox.renew, config.lease_seconds)
        self._loop: LeaseLoop[Delivery] = LeaseLoop(self, heartbeats, outbox.waiting, LoopConfig(POLL_SECONDS))

    def running(self) -> AbstractAsyncContextManager[None]:
        """Deliver while the context is open."""
        return self._loop.running("deliver to slack")

    async def claim(self, late: Sequence[RowLease]) -> Claims[Delivery]:
        """Claim as many deliveries as there are free slots, except those of `late`.

        `late` are leases of deliveries that this process still works on although they have expired. If only the slots
        for complete answers are free, claim complete answers only.
        """
        free = self._config.concurrency - len(self._loop.held)
        if free + READY_PLACES <= 0:
            return Claims()
        claim = DeliveryClaim(
            worker=self._config.worker,
            limit=free if free > 0 else free + READY_PLACES,
            lease_seconds=self._config.lease_seconds,
            only_ready=free <= 0,
            held=[lease.id for lease in late],
        )
        claimed = await self._outbox.claim(claim)
        return Claims(claimed, may_have_left=bool(claimed))

    async def perform(self, claimed: Delivery, heartbeat: Heartbeat[RowLease]) -> None:
        """Deliver one answer.

        A failed delivery is put back, given up, or left to the process that has claimed it meanwhile.
        """
        await work_until_lost(self._deliver(claimed), heartbeat, lambda: self._seconds_after_loss(claimed))

    async def _deliver(self, claimed: Delivery) -> None:
        match await outcome_of_awaiting(self._sender.deliver(claimed)):
            case Raised(LeaseLost()):
                log.warning("slack delivery lease lost, delivery stopped", delivery=str(claimed.lease.id))
            case Raised(error):
                await self._failed(claimed, error)
            case Returned():
                pass

    async def put_back(self, claimed: Delivery) -> None:
        """Put the delivery back as if it was never attempted. Raises LeaseLost, DatabaseUnavailable."""
        await self._outbox.put_back(claimed.lease, delay_seconds=0)

    def ended(self, _claimed: Delivery) -> None:
        """Wake the claim loop, because a slot has become free."""
        self._outbox.waiting.wake()

    async def _seconds_after_loss(self, claimed: Delivery) -> float:
        """Return for how many seconds the sender may still close open messages in Slack after it lost its lease.

        This is 0 if another process may deliver, and a third of the lease if the delivery is over or deleted.
        """
        with ErrorBoundary(log.debug, task="slack delivery state"):
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
            log.warning("slack delivery outcome not stored, lease left to expire", delivery=str(delivery.lease.id))


def _needs_operator(error: BaseException) -> bool:
    return isinstance(error, SlackRefused) and error.error in TOKEN_ERRORS


def _is_over(delivery: Delivery, error: BaseException) -> bool:
    """Return whether to give up the delivery.

    Temporary errors and errors that an operator must resolve are retried for a day. Other errors of Slack are final.
    Unexpected errors are retried a few times.
    """
    if isinstance(error, TemporaryError) or _needs_operator(error):
        return delivery.ready_seconds >= LONGEST_WAIT_SECONDS
    return isinstance(error, SlackRefused) or delivery.attempt >= MOST_ATTEMPTS


def _pause(delivery: Delivery, error: BaseException) -> float:
    """Return the seconds until the next attempt. They double each time and are at least what Slack demands."""
    pause = doubled_backoff(delivery.attempt, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    asked = error.delay_seconds if isinstance(error, TemporaryError) else None
    return max(pause, asked or 0.0)


def _reason(error: BaseException) -> str:
    """Return the reason that people see. Of an error from Slack it contains only the error code."""
    if isinstance(error, SlackRefused):
        return f"Slack refused it (`{error.error}`)"
    return "Slack could not be reached for a day" if isinstance(error, TemporaryError) else "something went wrong"


def _code(error: BaseException) -> str:
    if isinstance(error, SlackRefused):
        return error.error
    return error.code if isinstance(error, ThroughlineError) else type(error).__name__
