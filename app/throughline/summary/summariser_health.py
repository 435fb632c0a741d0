"""What is known of how summary models do: whether one may be asked now, and what each call says of it.

A model that cannot be reached is left alone by all sessions; one whose answers are of no use, by the session whose
messages or wishes they answer: what one user writes keeps no other from being summarised.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from throughline.domain.errors import ModelAuthenticationFailed, ModelQuotaExhausted, ModelUnavailable, ThroughlineError
from throughline.execution.breaker import Breakers, BreakerState
from throughline.ports.metrics import Metrics
from throughline.prompting.summary_model import content_key, read_health, turn_key
from throughline.summary.summariser import Summariser

OF_THE_MODEL = (ModelUnavailable, ModelAuthenticationFailed, ModelQuotaExhausted)
"""Failures that everybody would meet; all others come of what the model was asked."""

log = structlog.get_logger(__name__)


class SummariserResting(ModelUnavailable):
    """The summary model failed several times in a row and is not asked until its cool-down is over."""

    code = "summariser_resting"


@dataclass(frozen=True, slots=True)
class SummariserHealth:
    """Asks and tells the breakers for one session. `is_hurried`: a turn waits, and so only its time limit is there."""

    breakers: Breakers
    metrics: Metrics
    session_id: str
    is_hurried: bool = True

    def take_leave(self, summariser: Summariser) -> None:
        """Raise SummariserResting unless the model may be asked now; who asks tells afterwards how it went."""
        taken: list[str] = []
        for key in self._keys(summariser):
            if not self.breakers.may_call(key):
                self._release(taken)
                raise self._resting(summariser)
            taken.append(key)

    def answered(self, summariser: Summariser) -> None:
        """It wrote what can be used, or a text that is only too large to be worth it."""
        for key in self._keys(summariser):
            self.breakers.succeeded(key)
        self._show(summariser)

    def met_overflow(self, summariser: Summariser) -> None:
        """It called the request too long: it can be reached, and is asked for less."""
        self.breakers.released(content_key(summariser.key, self.session_id))
        self.metrics.summary_failed(model=summariser.model.name, reason="context_overflow")
        self._was_reached(summariser)

    def is_of_no_use(self, summariser: Summariser) -> None:
        """What it answered cannot be used, whatever it is asked of this session."""
        self.breakers.failed(content_key(summariser.key, self.session_id))
        self._was_reached(summariser)

    def failed(self, summariser: Summariser, error: ThroughlineError) -> None:
        """Count a failure where it belongs: with the model, or with what this session asks of it."""
        if isinstance(error, OF_THE_MODEL):
            self._failed_with(summariser, summariser.key)
        else:
            self.is_of_no_use(summariser)
        self._report(summariser, error.code)

    def cut_off(self, summariser: Summariser, *, had_its_share: bool) -> None:
        """The time was up: the model's failure only where it had its fair share of it, in a turn for turns alone."""
        if had_its_share:
            self._failed_with(summariser, turn_key(summariser.key) if self.is_hurried else summariser.key)
        else:
            self.released(summariser)
        self._report(summariser, "timeout")

    def released(self, summariser: Summariser) -> None:
        """The call says nothing of the model."""
        self._release(self._keys(summariser))

    def rest_seconds(self, summariser: Summariser) -> float:
        """Return how long the model is left alone from now on, 0 where it may be asked."""
        return max(self.breakers.reading(key).retry_after_seconds for key in self._keys(summariser))

    def _keys(self, summariser: Summariser) -> tuple[str, ...]:
        """Return under what the model's failures are counted that this session meets."""
        always = (summariser.key, content_key(summariser.key, self.session_id))
        return (*always, turn_key(summariser.key)) if self.is_hurried else always

    def _resting(self, summariser: Summariser) -> SummariserResting:
        name = summariser.model.name
        self.metrics.summary_failed(model=name, reason=SummariserResting.code)
        seconds = math.ceil(read_health(self.breakers, summariser.key, self.session_id).retry_after_seconds)
        return SummariserResting(
            f"The summary model {name} failed several times in a row; it is asked again in {max(seconds, 1)} seconds."
        )

    def _release(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.breakers.released(key)

    def _was_reached(self, summariser: Summariser) -> None:
        self.breakers.succeeded(summariser.key)
        if self.is_hurried:
            self.breakers.succeeded(turn_key(summariser.key))
        self._show(summariser)

    def _failed_with(self, summariser: Summariser, counted: str) -> None:
        """Count the failure under one key; under the others the call says nothing."""
        self._release(key for key in self._keys(summariser) if key != counted)
        self.breakers.failed(counted)
        self._show(summariser)

    def _show(self, summariser: Summariser) -> None:
        keys = (summariser.key, turn_key(summariser.key))
        is_open = any(self.breakers.reading(key).state is not BreakerState.CLOSED for key in keys)
        self.metrics.summary_breaker_read(model=summariser.model.name, is_open=is_open)

    def _report(self, summariser: Summariser, reason: str) -> None:
        self.metrics.summary_failed(model=summariser.model.name, reason=reason)
        log.warning("summariser failed", model=summariser.model.name, error=reason)
