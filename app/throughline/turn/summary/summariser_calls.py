"""Model calls of one compaction: a time limit for each, one retry, then the fallback model, and circuit breakers.

`SummaryWriter` asks for every text through `SummariserCalls`. It also records what was paid, and which call was running
when the time ran out.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import structlog

from throughline.context.summaries.check_summary import (
    MOST_CHARACTERS_PER_TOKEN,
    NotWorthIt,
    SummaryRejected,
    check_summary,
)
from throughline.context.summaries.keep_lines import split_answer
from throughline.context.summaries.render_summary import PARAGRAPH, cut_back
from throughline.context.summaries.summary_prompt import TextRequest
from throughline.domain.basic_types import Clock
from throughline.domain.errors import (
    AnswerIncomplete,
    AnswerTooLong,
    ContextOverflow,
    ModelAuthenticationFailed,
    ModelQuotaExhausted,
    ModelRejected,
    ModelUnavailable,
    ThroughlineError,
    provider_words,
)
from throughline.domain.message import clean_text, text_of
from throughline.domain.prompt import AnswerComplete, ModelRequest, Usage
from throughline.domain.reasoning import without_thinking
from throughline.domain.summary import Spent
from throughline.domain.usage_report import CallPurpose, ModelCall
from throughline.execution.breaker import Breakers, BreakerState
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.ports.metrics import Metrics, count_cost
from throughline.ports.models import ChatModel
from throughline.ports.tracing import ModelCallPart, traced
from throughline.turn.prompting.ready_agent import content_key, model_keys
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.model_paces import ModelPaces
from throughline.turn.summary.summariser import Summariser

LEAST_ANSWER_BYTES = 200_000
"""Bytes of an answer that are accepted in any case: reasoning models write more than the limit of their answer."""

ONLY_LINES = "The summary model named what to keep and wrote no summary."

REFUSED = "Your last answer was refused: {reason} Write the summary again."

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


class TextsRefusedBefore(CircuitOpen):
    """Error without a call: the last texts that the summary model wrote for this session were refused."""


class TextsRefused(SummaryRejected):
    """Exception if the texts of all summary models were refused; the same request would fail again."""


class SummaryTooSlow(ModelUnavailable):
    """Error of a summary model that was still writing when its time was up, or that is known to be too slow for a turn.

    It does not count as a failure of the model.
    """

    code = "too_slow"


def pause_seconds(error: ModelUnavailable) -> float:
    """Return the seconds to wait before a model is asked again: the provider's delay, or a short default."""
    return RETRY_PAUSE_SECONDS if error.delay_seconds is None else error.delay_seconds


@dataclass(frozen=True, slots=True)
class Written:
    """A text that a summary model wrote, its cost, and the lines below it that name facts to keep.

    `tokens` is the size of the text by our count, 0 until it is checked. `usage` is the provider's report; tokens that
    it lacks are counted. `is_cut`: the text reached the limit of the answer. `has_calls`: the model called tools,
    although none were offered.
    """

    text: str
    model: str
    keep_lines: str = ""
    usage: Usage = field(default_factory=Usage)
    is_cut: bool = False
    has_calls: bool = False
    tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0


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
    - `heard`: the pieces of its answer that have arrived, asked for at `asked_at`; `paces`: the measured speeds.
    - `unsaved`: an answer that is not stored yet; `kept`: the stored ones.
    - `timed_out_models`: not called again while there is a fallback.
    - `until`: the end of the present model's share of the time.
    - `refused_lines`: the lines that name facts below the last refused text: each is checked by itself.
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
    asked_at: float = 0.0
    began: float = 0.0
    under_way: Summariser | None = None
    unsaved: Written | None = None
    kept: list[Written] = field(default_factory=list)
    timed_out_models: set[str] = field(default_factory=set)
    until: float = math.inf
    refused_lines: str = ""
    spent: Spent = field(default_factory=Spent)
    answered: list[ModelCall] = field(default_factory=list)

    async def first_success(
        self, summarisers: Sequence[Summariser], attempt: Callable[[Summariser], Awaitable[T]]
    ) -> T:
        """Return the result of the first summary model that succeeds, each in an equal share of the remaining time.

        If none succeeds, raise NotWorthIt if one of them raised it, TextsRefused if all models answered and their texts
        were refused, else the last error.
        """
        not_worth: NotWorthIt | None = None
        last: ThroughlineError = SummaryRejected("There is no summary model to ask.")
        refused = 0
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
                refused += isinstance(error, SummaryRejected | TextsRefusedBefore)
        if not not_worth and refused and refused == len(summarisers):
            raise TextsRefused(last.detail) from last
        raise not_worth or last

    async def ask(self, summariser: Summariser, asked: TextRequest) -> Written:
        """Return the text written for `asked`, checked if it is a summary.

        Raises CircuitOpen, SummaryTimedOut, SummaryTooSlow, SummaryRejected and the model's errors, and NotWorthIt,
        which is no failure.
        """
        self._check_pace(summariser, asked)
        self._acquire_breakers(summariser)
        self.under_way, self.began, self.heard = summariser, self.clock.monotonic(), []
        seconds = max(self.until - self.clock.monotonic(), 0) if self.until < self.deadline else None
        try:
            async with asyncio.timeout(seconds):
                written = await self._try_twice(summariser, asked)
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
        raise (TextsRefusedBefore if self._is_refused(summariser) else CircuitOpen)(
            f"The summary model {name} failed several times in a row; it is asked again in {max(seconds, 1)} seconds."
        )

    def _is_refused(self, summariser: Summariser) -> bool:
        """Return whether only the texts that the model wrote for this session keep it from being called."""
        *others, content = self._keys(summariser)
        are_closed = all(self.breakers.reading(key).state is BreakerState.CLOSED for key in others)
        return are_closed and self.breakers.failures(_refused_key(content)) > 0

    def _check_pace(self, summariser: Summariser, asked: TextRequest) -> None:
        """Raise SummaryTooSlow if a turn waits and the model, at its measured speed, cannot end in its time."""
        now = self.clock.monotonic()
        tokens, seconds = summariser.output_tokens(asked.max_tokens), min(self.until, self.deadline) - now
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
        self.paces.record(summariser.key, tokens, now - self.asked_at, now=now, is_whole=is_whole)

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
        if isinstance(error, SummaryRejected):
            self.breakers.failed(_refused_key(content))
        else:
            self.breakers.succeeded(_refused_key(content))
        if error is None or isinstance(error, NotWorthIt):
            self.breakers.succeeded(content)
        elif isinstance(error, ContextOverflow):
            self.breakers.released(content)
        else:
            self.breakers.failed(content)

    async def _try_twice(self, summariser: Summariser, asked: TextRequest) -> Written:
        """Ask for the text, and once more after a failure.

        The second try follows after a pause if the model was unavailable. If its text was unusable, it follows at once
        and says why. It is made only if there is time for it; for another text, as much as the first one took.
        """
        began = self.clock.monotonic()
        try:
            return await self._write_and_check(summariser, asked)
        except (ModelUnavailable, SummaryRejected) as error:
            took = self.clock.monotonic() - began
            pause = pause_seconds(error) if isinstance(error, ModelUnavailable) else 0.0
            if began + took + (pause or took) >= self.until:
                raise
            log.info("summary call retried", model=summariser.model.name, error=error.code, **provider_words(error))
            again = asked if pause else asked_again(asked, error.detail)
        if pause:
            await self.clock.sleep(pause)
        return await self._write_and_check(summariser, again)

    async def _write_and_check(self, summariser: Summariser, asked: TextRequest) -> Written:
        began, self.heard = self.clock.monotonic(), []
        self.asked_at = began
        answer = await write_text(summariser, asked, self.heard)
        seconds = self.clock.monotonic() - began
        size = len(answer.text) + len(asked.text)
        read, wrote = await run_off_loop_if_large(size, partial(_used_tokens, summariser, asked, answer))
        written = replace(answer, input_tokens=read, output_tokens=wrote, seconds=seconds)
        self._measure(summariser, wrote, is_whole=True)
        self._record(written)
        if asked.reach is None:
            return written
        try:
            return await check_text(written, summariser, asked)
        except (NotWorthIt, SummaryRejected) as error:
            self.refused_lines = written.keep_lines or self.refused_lines
            self._count_unused(written, error.code)
            raise

    def _record(self, written: Written) -> None:
        """Record the cost of an answer, whether it is usable or not."""
        call = ModelCall(written.model, CallPurpose.SUMMARY, written.usage)
        self.answered.append(call)
        count_cost(self.metrics, call)
        read, wrote, seconds, spent = written.input_tokens, written.output_tokens, written.seconds, self.spent
        self.spent = Spent(
            spent.calls + 1, spent.input_tokens + read, spent.output_tokens + wrote, spent.seconds + seconds
        )
        self.metrics.summary_written(model=written.model, input_tokens=read, output_tokens=wrote, seconds=seconds)

    def _count_unused(self, written: Written, reason: str) -> None:
        tokens = written.input_tokens + written.output_tokens
        self.metrics.summary_unused(model=written.model, tokens=tokens, reason=reason)


def begin_calls(
    dependencies: SummaryDependencies, session_id: str, seconds: float, policy_seconds: float
) -> SummariserCalls:
    """Return the calls of a compaction that ends in `seconds`; `policy_seconds` is the agent's own limit."""
    return SummariserCalls(
        clock=dependencies.clock,
        metrics=dependencies.metrics,
        breakers=dependencies.breakers,
        paces=dependencies.paces,
        session_id=session_id,
        deadline=dependencies.clock.monotonic() + seconds,
        least_seconds_of_model=FAIR_SHARE * max(policy_seconds, seconds),
    )


def _cut_key(pace: str) -> str:
    """Return the key under which answers that were cut off are counted; it blocks no call."""
    return f"{pace}, cut off"


def _refused_key(content: str) -> str:
    """Return the key under which refused texts are counted; it blocks no call."""
    return f"{content}, refused"


def asked_again(asked: TextRequest, reason: str) -> TextRequest:
    """Return the request with `reason`, for which the last answer was refused."""
    *before, last = asked.prompt.messages
    said = PARAGRAPH.join((text_of(last.content), REFUSED.format(reason=reason)))
    prompt = replace(asked.prompt, messages=(*before, replace(last, content=said)))
    return replace(asked, prompt=prompt, may_be_unchanged=True)


async def write_text(summariser: Summariser, asked: TextRequest, heard: list[str] | None = None) -> Written:
    """Send the request for a text, by our count of at most its `max_tokens`, and `keep_tokens` of lines below it.

    No tools are offered. An answer that reached its limit is cut back to its last whole line or sentence; a cut summary
    is marked and may become empty. `heard` gets the pieces of the answer as they arrive. Raises the ModelRejected and
    ModelUnavailable families.
    """
    output_tokens = summariser.output_tokens(asked.max_tokens + asked.keep_tokens)
    most = max(output_tokens * MOST_CHARACTERS_PER_TOKEN, LEAST_ANSWER_BYTES)
    request = ModelRequest(prompt=asked.prompt, tools=(), max_output_tokens=output_tokens, max_answer_bytes=most)
    answer = await _collect(summariser.model, request, [] if heard is None else heard)
    text, lines = clean_text(answer.text).strip(), ""
    if asked.keep_tokens:
        text, lines = split_answer(without_thinking(text))
    if answer.is_cut and lines:
        lines = lines.rpartition("\n")[0]
    elif answer.is_cut:
        text = cut_back(without_thinking(text))
    is_cut, has_calls = answer.is_cut and not lines, bool(answer.tool_calls)
    return Written(text, summariser.model.name, lines, answer.usage, is_cut=is_cut, has_calls=has_calls)


async def check_text(written: Written, summariser: Summariser, asked: TextRequest) -> Written:
    """Return the text in the form to store; large ones are checked in a thread.

    A text that reached its limit may not be the existing summary again: what is new may be what is missing. Raises
    SummaryRejected for an unusable text, NotWorthIt for one that is no smaller than what it would replace.
    """
    may_be_unchanged = asked.may_be_unchanged and not written.is_cut
    answer = "" if written.has_calls else written.text
    believed, is_extract = replace(asked, may_be_unchanged=may_be_unchanged), summariser.is_extracting
    check = partial(check_summary, answer, believed, summariser.count, is_extract=is_extract)
    size = len(written.text) + len(asked.text)
    try:
        text, tokens = await run_off_loop_if_large(size, check)
    except SummaryRejected as error:
        if written.text or not written.keep_lines:
            raise
        raise SummaryRejected(ONLY_LINES) from error
    return replace(written, text=text, tokens=tokens)


async def _collect(model: ChatModel, request: ModelRequest, heard: list[str]) -> AnswerComplete:
    """Return the answer. Raises AnswerTooLong if it exceeds the request's limit; the connection is then closed."""
    with traced(ModelCallPart(model.name, model.address, CallPurpose.SUMMARY, request)) as span:
        answer = await _collect_stream(model, request, heard)
        span.add_result(answer)
        return answer


async def _collect_stream(model: ChatModel, request: ModelRequest, heard: list[str]) -> AnswerComplete:
    stream, left = model.stream(request), request.max_answer_bytes
    try:
        async for event in stream:
            left -= 0 if isinstance(event, AnswerComplete) else len(event.text.encode())
            if left < 0 or len(event.text) > request.max_answer_bytes:
                raise AnswerTooLong(f"The summary model wrote more than {request.max_answer_bytes} bytes.")
            if isinstance(event, AnswerComplete):
                return event
            heard.append(event.text)
    finally:
        await stream.aclose()
    raise AnswerIncomplete("The summary model ended without an answer.")


def _used_tokens(summariser: Summariser, asked: TextRequest, answer: Written) -> tuple[int, int]:
    """Return the tokens read and written; without a report of the provider, our own counts."""
    reported, written = answer.usage.input_tokens, answer.usage.output_tokens
    return (
        summariser.prompt_tokens(asked.prompt) if reported is None else reported,
        summariser.count(answer.text) if written is None else written,
    )
