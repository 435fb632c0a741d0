"""Model calls of one compaction: a time limit for each, one retry, then the fallback model, and circuit breakers.

`write_segments.py` uses it. It also records what was paid, and which call was running when the time ran out.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import structlog

from throughline.domain.basic_types import Clock
from throughline.domain.errors import (
    ContextOverflow,
    ModelAuthenticationFailed,
    ModelQuotaExhausted,
    ModelRejected,
    ModelUnavailable,
    ThroughlineError,
    provider_words,
)
from throughline.domain.message import text_of
from throughline.domain.summary import Spent
from throughline.domain.usage_report import CallPurpose, ModelCall
from throughline.execution.breaker import Breakers, BreakerState
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.ports.metrics import Metrics, count_cost
from throughline.turn.prompting.ready_agent import content_key, model_keys
from throughline.turn.summary.summariser import (
    Ask,
    NotWorthIt,
    Summariser,
    SummaryRejected,
    Written,
    check_answer,
    sources_of,
    used_tokens,
    write_summary,
)

# How fast summary models write, measured in their calls: how long a preparation waits, and which calls are not begun.
#
# SummariserCalls measures; `prepare.py` asks for its time limit.

MOST_SECONDS = 600.0
"""Longest time limit that follows from a measured speed."""

SAFETY = 2.0
"""Factor of the time that a text takes at the measured speed, because no call is as fast as the one before."""

VALID_SECONDS = 600.0
"""Time after which a turn tries a slow model again: its server may have become faster."""

SHORTEST_SHARE = 1 / 4
"""Share of the largest answer that an answer is assumed to take as long as none has ended."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a model wrote of one answer in `seconds`, also if it was cut off; `at` is the time of the clock then."""

    tokens: int
    seconds: float
    at: float
    is_whole: bool


@dataclass(slots=True)
class ModelPaces:
    """The speeds of a process's summary models, by the keys of their breakers; those of the latest calls count."""

    _heard: dict[str, Heard] = field(default_factory=dict)
    _whole: dict[str, Heard] = field(default_factory=dict)

    def record(self, key: str, heard: Heard) -> None:
        """Remember the speed of a call, unless it wrote no token or took no time."""
        if heard.tokens <= 0 or heard.seconds <= 0:
            return
        self._heard[key] = heard
        if heard.is_whole:
            self._whole[key] = heard

    def tokens_per_second(self, key: str) -> float | None:
        """Return the model's latest speed, with the time it reads in; None if it was not measured."""
        heard = self._heard.get(key)
        return None if heard is None else heard.tokens / heard.seconds

    def patient_seconds(self, key: str, tokens: int, *, at_least: float) -> float:
        """Return how long to wait for a text of at most `tokens` if no user waits."""
        speed = self.tokens_per_second(key)
        wanted = 0.0 if speed is None else SAFETY * tokens / speed
        return max(at_least, min(wanted, MOST_SECONDS))

    def is_too_slow(self, key: str, tokens: int, *, seconds: float, now: float) -> bool:
        """Return whether an answer of at most `tokens`, of the usual length, cannot end within `seconds`."""
        speed, heard = self.tokens_per_second(key), self._heard.get(key)
        if speed is None or heard is None or now - heard.at > VALID_SECONDS:
            return False
        usual = self._whole[key].tokens if key in self._whole else math.ceil(SHORTEST_SHARE * tokens)
        return min(usual, tokens) / speed > seconds


# Errors of calls to summary models, and which of them are the model's own.
#
# SummariserCalls raises them.

RETRY_PAUSE_SECONDS = 0.5

SUMMARISER_ERRORS = (ModelRejected, ModelUnavailable, SummaryRejected)
"""Errors after which the next summary model is tried."""

OF_THE_MODEL = (ModelUnavailable, ModelAuthenticationFailed, ModelQuotaExhausted)
"""Failures that would affect every session.

All others depend on a session's request and count for that session alone, so that one user's text blocks no other
user's summaries.
"""


class CircuitOpen(ModelUnavailable):
    """Error without a call: the summary model failed several times in a row, and its cool-down is not over."""

    code = "circuit_open"


class SummaryTimedOut(ModelUnavailable):
    """Error of a summary model that did not answer within its share of the compaction's time limit."""

    code = "timeout"


class SummaryTooSlow(ModelUnavailable):
    """Error of a summary model that was still writing when its time was up, or that is known to be too slow for a turn.

    It does not count as a failure of the model.
    """

    code = "too_slow"


def pause_seconds(error: ModelUnavailable) -> float:
    """Return the seconds to wait before a model is asked again: the provider's delay, or a short default."""
    return RETRY_PAUSE_SECONDS if error.delay_seconds is None else error.delay_seconds


T = TypeVar("T")
FAIR_SHARE = 0.4
"""Share of the time limit that a call must have had before its timeout counts against the model."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class SummariserCalls:
    """All model calls of one compaction; the caller cancels them at `deadline` (of `clock.monotonic`).

    - `under_way`: the model being called, since `began`.
    - `least_seconds_of_model`: a timeout counts against the model only if the call had this much time.
    - `is_in_turn`: timeouts in turns and in the background are counted separately.
    - `heard`: the pieces of its answer that have arrived, asked for at `asked`; `paces`: the measured speeds.
    - `unsaved`: an answer that is not stored yet; `kept`: the stored ones.
    - `timed_out_models`: not called again while there is a fallback.
    - `until`: the end of the present model's share of the time.
    - `spent`: the cost of all answers so far; `answered`: the answered calls, also of unusable answers.
    """

    clock: Clock
    metrics: Metrics
    breakers: Breakers
    session_id: str
    deadline: float
    least_seconds_of_model: float = 0.0
    is_in_turn: bool = False
    paces: ModelPaces = field(default_factory=ModelPaces)
    heard: list[str] = field(default_factory=list)
    asked: float = 0.0
    began: float = 0.0
    under_way: Summariser | None = None
    unsaved: Written | None = None
    kept: list[Written] = field(default_factory=list)
    timed_out_models: set[str] = field(default_factory=set)
    until: float = math.inf
    spent: Spent = field(default_factory=Spent)
    answered: list[ModelCall] = field(default_factory=list)

    async def first_success(
        self, summarisers: Sequence[Summariser], attempt: Callable[[Summariser], Awaitable[T]]
    ) -> T:
        """Return the result of the first summary model that succeeds, each in an equal share of the remaining time.

        If none succeeds, raise NotWorthIt if one of them raised it, else the last error.
        """
        not_worth: NotWorthIt | None = None
        last: ThroughlineError = SummaryRejected("There is no summary model to ask.")
        for left, summariser in zip(range(len(summarisers), 0, -1), summarisers, strict=True):
            if left > 1 and summariser.key in self.timed_out_models:
                continue
            now = self.clock.monotonic()
            self.until = now + (self.deadline - now) / left
            try:
                return await attempt(summariser)
            except NotWorthIt as error:
                not_worth = error
            except SUMMARISER_ERRORS as error:
                last = error
        raise not_worth or last

    async def ask(self, summariser: Summariser, ask: Ask) -> Written:
        """Return the text written for `ask`, checked if it is a summary.

        Raises CircuitOpen, SummaryTimedOut, SummaryTooSlow, SummaryRejected and the model's errors, and NotWorthIt,
        which is no failure.
        """
        self._check_pace(summariser, ask)
        self._acquire_breakers(summariser)
        self.under_way, self.began, self.heard = summariser, self.clock.monotonic(), []
        seconds = max(self.until - self.clock.monotonic(), 0) if self.until < self.deadline else None
        try:
            async with asyncio.timeout(seconds):
                written = await self._try_twice(summariser, ask)
        except TimeoutError:
            raise self._cut_off() from None
        except (*SUMMARISER_ERRORS, NotWorthIt) as error:
            self._count_end(summariser, error)
            raise
        except BaseException:
            self.breakers.released(*self._keys(summariser))
            raise
        self._count_end(summariser)
        self.unsaved = written
        return written

    def too_long(self, summariser: Summariser) -> None:
        """Count a failure: the model refuses everything from this session as too long."""
        self.breakers.failed(content_key(summariser.key, self.session_id))

    def rest_seconds(self, summariser: Summariser) -> float:
        """Return the seconds until the model may be called again; 0 if it may be called now."""
        return max(self.breakers.reading(key).retry_after_seconds for key in self._keys(summariser))

    def time_outs(self, summariser: Summariser) -> int:
        """Return the number of consecutive calls that the model did not answer in time."""
        pace = self._keys(summariser)[1]
        return self.breakers.failures(pace) + self.breakers.failures(_cut_key(pace))

    def saved(self) -> None:
        """Record that the latest answer is stored."""
        if self.unsaved is not None:
            self.kept.append(self.unsaved)
        self.unsaved = None

    def timed_out(self) -> None:
        """End the call that the compaction's time limit interrupted; an answer not yet stored counts as unused."""
        self._cut_off()
        if self.unsaved is not None:
            self._count_unused(self.unsaved, "timeout")
        self.unsaved = None

    def count_unused(self, reason: str) -> None:
        """Count the tokens of all stored answers as unused in the metrics; `reason` is why no summary uses them."""
        for written in self.kept:
            self._count_unused(written, reason)
        self.kept.clear()

    def _keys(self, summariser: Summariser) -> tuple[str, str, str]:
        """Return the keys of the call's breakers: the model's failures, its timeouts, and this session's requests."""
        model, in_turns, ahead = model_keys(summariser.key)
        return model, in_turns if self.is_in_turn else ahead, content_key(model, self.session_id)

    def _acquire_breakers(self, summariser: Summariser) -> None:
        if self.breakers.acquire(*self._keys(summariser)):
            return
        name, seconds = summariser.model.name, math.ceil(self.rest_seconds(summariser))
        self.metrics.summary_failed(model=name, reason=CircuitOpen.code)
        raise CircuitOpen(
            f"The summary model {name} failed several times in a row; it is asked again in {max(seconds, 1)} seconds."
        )

    def _check_pace(self, summariser: Summariser, ask: Ask) -> None:
        """Raise SummaryTooSlow if a turn waits and the model, at its measured speed, cannot end in its time."""
        now = self.clock.monotonic()
        tokens, seconds = summariser.output_tokens(ask.max_tokens), min(self.until, self.deadline) - now
        if not self.is_in_turn or not self.paces.is_too_slow(summariser.key, tokens, seconds=seconds, now=now):
            return
        name, speed = summariser.model.name, self.paces.tokens_per_second(summariser.key)
        self.metrics.summary_failed(model=name, reason=SummaryTooSlow.code)
        raise SummaryTooSlow(
            f"The summary model {name} writes {speed:.3g} tokens a second, too few for the {seconds:.3g} seconds that "
            "a turn has for it. Its summaries are written between turns."
        )

    def _measure(self, summariser: Summariser, tokens: int, *, is_whole: bool) -> None:
        now = self.clock.monotonic()
        self.paces.record(summariser.key, Heard(tokens, now - self.asked, now, is_whole))

    def _cut_off(self) -> SummaryTimedOut | SummaryTooSlow:
        error: SummaryTimedOut | SummaryTooSlow = SummaryTimedOut("The summary model did not answer in time.")
        if self.under_way is not None:
            if self.heard:
                error = SummaryTooSlow("The summary model was still writing when its time was up.")
                self._measure(self.under_way, self.under_way.count("".join(self.heard)), is_whole=False)
            self.timed_out_models.add(self.under_way.key)
            self._count_end(self.under_way, error)
        return error

    def _count_end(self, summariser: Summariser, error: ThroughlineError | None = None) -> None:
        """Count how a call ended, against the model or against this session's requests."""
        self.under_way = None
        model, pace, content = self._keys(summariser)
        if isinstance(error, OF_THE_MODEL):
            self.breakers.released(model, pace, content)
            self._count_failure(model, pace, error)
        else:
            self.breakers.succeeded(model)
            self.breakers.succeeded(pace)
            self.breakers.succeeded(_cut_key(pace))
            self._count_answer(content, error)
        readings = map(self.breakers.reading, model_keys(model))
        is_open = any(reading.state is not BreakerState.CLOSED for reading in readings)
        self.metrics.summary_breaker_read(model=summariser.model.name, is_open=is_open)
        if error is not None and not isinstance(error, NotWorthIt):
            self.metrics.summary_failed(model=summariser.model.name, reason=error.code)
            log.warning("summary call given up", model=summariser.model.name, error=error.code, **provider_words(error))

    def _count_failure(self, model: str, pace: str, error: ThroughlineError) -> None:
        if isinstance(error, SummaryTooSlow):
            self.breakers.failed(_cut_key(pace))
        elif not isinstance(error, SummaryTimedOut):
            self.breakers.failed(model)
        elif min(self.until, self.deadline) - self.began >= self.least_seconds_of_model:
            self.breakers.failed(pace)

    def _count_answer(self, content: str, error: ThroughlineError | None) -> None:
        """Count a call that the model answered. A refusal as too long does not count: smaller chunks are tried next."""
        if error is None or isinstance(error, NotWorthIt):
            self.breakers.succeeded(content)
        elif isinstance(error, ContextOverflow):
            self.breakers.released(content)
        else:
            self.breakers.failed(content)

    async def _try_twice(self, summariser: Summariser, ask: Ask) -> Written:
        """Ask for the text, and once more after a failure.

        The second try follows after a pause if the model was unavailable, at once if its text was unusable. It is made
        only if there is time for it; for another text, as much as the first one took.
        """
        began = self.clock.monotonic()
        try:
            return await self._write_and_check(summariser, ask)
        except (ModelUnavailable, SummaryRejected) as error:
            took = self.clock.monotonic() - began
            pause = pause_seconds(error) if isinstance(error, ModelUnavailable) else 0.0
            if began + took + (pause or took) >= self.until:
                raise
            log.info("summary call retried", model=summariser.model.name, error=error.code, **provider_words(error))
        if pause:
            await self.clock.sleep(pause)
        return await self._write_and_check(summariser, replace(ask, may_be_unchanged=not pause))

    async def _write_and_check(self, summariser: Summariser, ask: Ask) -> Written:
        self.asked, self.heard = self.clock.monotonic(), []
        answer = await write_summary(
            ask.prompt, summariser, max_tokens=ask.max_tokens, keep_tokens=ask.keep_tokens, heard=self.heard
        )
        seconds = self.clock.monotonic() - self.asked
        asked = text_of(ask.prompt.messages[0].content)
        size = len(answer.text) + len(asked)
        tokens = await run_off_loop_if_large(size, partial(used_tokens, summariser, ask, answer))
        written = Written(answer.text, 0, summariser.model.name, *tokens, seconds)
        self._measure(summariser, tokens[1], is_whole=True)
        self.answered.append(ModelCall(summariser.model.name, CallPurpose.SUMMARY, answer.usage))
        count_cost(self.metrics, self.answered[-1])
        spent = self.spent
        self.spent = Spent(
            spent.calls + 1, spent.input_tokens + tokens[0], spent.output_tokens + tokens[1], spent.seconds + seconds
        )
        self.metrics.summary_written(
            model=written.model, input_tokens=tokens[0], output_tokens=tokens[1], seconds=seconds
        )
        if ask.reach is None:
            return written
        try:
            checked = await check_answer(
                answer,
                summariser,
                replaced_tokens=ask.replaced_tokens,
                max_tokens=ask.max_tokens,
                sources=sources_of(asked, ask),
            )
        except (NotWorthIt, SummaryRejected) as error:
            self._count_unused(written, error.code)
            raise
        return replace(written, text=checked.text, tokens=checked.tokens, keep_lines=answer.keep_lines)

    def _count_unused(self, written: Written, reason: str) -> None:
        tokens = written.input_tokens + written.output_tokens
        self.metrics.summary_unused(model=written.model, tokens=tokens, reason=reason)


def _cut_key(pace: str) -> str:
    """Return the key under which answers that were cut off are counted; it blocks no call."""
    return f"{pace}, cut off"
