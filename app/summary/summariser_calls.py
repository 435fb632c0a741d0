"""The failure ladder of one compaction's model calls: one retry, then the fallback model, and a breaker for each.

Used by `stretches`; it also keeps what was paid, and which model was being asked when the time ran out.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import structlog

from app.context.frame import unframed
from app.context.summaries.summary_check import Sources, Verdict, check_summary
from app.context.summaries.transcript import CONVERSATION_TAG, EXISTING_TAG
from app.domain.clock import Clock
from app.domain.errors import ContextOverflow, ModelRejected, ModelUnavailable, ThroughlineError
from app.domain.message import text_of
from app.domain.prompt import Prompt
from app.execution.breaker import Breakers
from app.execution.off_loop import run_off_loop_if_large
from app.ports.metrics import Metrics
from app.summary.summariser import NotWorthIt, Summarised, Summariser, SummaryRejected, write_summary

T = TypeVar("T")
RETRY_PAUSE_SECONDS = 0.5
SUMMARISER_ERRORS = (ModelRejected, ModelUnavailable, SummaryRejected)
"""What the next summariser may do better."""

log = structlog.get_logger(__name__)


class SummariserResting(ModelUnavailable):
    """The summary model failed several times in a row and is left alone for a while."""

    code = "summariser_resting"


@dataclass(frozen=True, slots=True)
class Ask:
    """One text to be written. `replaced_tokens` is what it would stand for, `max_tokens` its most; both our counts.

    `reach` is the first and the last position it would stand for.
    """

    prompt: Prompt
    max_tokens: int
    replaced_tokens: int
    reach: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Written:
    """A text that may serve as a summary, and what it cost."""

    text: str
    tokens: int
    model: str
    input_tokens: int
    output_tokens: int
    seconds: float


@dataclass(slots=True)
class SummariserCalls:
    """All model calls of one compaction. `deadline` is of `clock.monotonic`: no retry waits beyond it.

    `asking` is the summariser whose call is under way; where the time limit cuts a call off it stays set.
    `unsaved` is a text that came back and is not stored yet, `kept` what was stored.
    """

    clock: Clock
    metrics: Metrics
    breakers: Breakers
    deadline: float
    asking: Summariser | None = None
    unsaved: Written | None = None
    kept: list[Written] = field(default_factory=list)

    async def ask(self, summariser: Summariser, ask: Ask) -> Written:
        """Have a text written and checked.

        Raises SummariserResting, SummaryRejected and the model's errors, and NotWorthIt, which is no failure.
        """
        if not self.breakers.may_call(summariser.key):
            raise SummariserResting("The summary model failed several times in a row and is left alone for a while.")
        self.asking = summariser
        try:
            written = await self._write_and_check(summariser, ask)
        except (ContextOverflow, NotWorthIt) as error:
            self.breakers.released(summariser.key)  # it answered; what was asked was wrong
            if isinstance(error, ContextOverflow):
                self.metrics.summary_failed(model=summariser.model.name, reason=error.code)
            self.asking = None
            raise
        except SUMMARISER_ERRORS as error:
            self.failed(error.code)
            raise
        except BaseException:
            self.breakers.released(summariser.key)
            raise
        self.breakers.succeeded(summariser.key)
        self.asking, self.unsaved = None, written
        return written

    def saved(self) -> None:
        """The text that came back last is stored."""
        if self.unsaved is not None:
            self.kept.append(self.unsaved)
        self.unsaved = None

    def failed(self, reason: str) -> None:
        """Count a failure of the summariser that is, or was, being asked."""
        if self.asking is None:
            return
        self.breakers.failed(self.asking.key)
        self.metrics.summary_failed(model=self.asking.model.name, reason=reason)
        log.warning("summariser failed", model=self.asking.model.name, error=reason)
        self.asking = None

    def timed_out(self) -> None:
        """The time limit cut the work off: the call under way failed, a text that was not stored is lost."""
        self.failed("timeout")
        if self.unsaved is not None:
            self._count_unused(self.unsaved, "timeout")
        self.unsaved = None

    def wasted(self, reason: str) -> None:
        """All that was written is not going to be used."""
        for written in self.kept:
            self._count_unused(written, reason)
        self.kept.clear()

    async def _write_and_check(self, summariser: Summariser, ask: Ask) -> Written:
        began = self.clock.monotonic()
        answer = await self._try_twice(summariser, ask)
        seconds = self.clock.monotonic() - began
        asked = text_of(ask.prompt.messages[0].content)
        size = len(answer.text) + len(asked)
        tokens = await run_off_loop_if_large(size, partial(_tokens, summariser, ask, answer))
        written = self._priced(summariser, answer, tokens, seconds)
        check = partial(
            check_summary,
            "" if answer.has_calls else answer.text,
            replaced_tokens=ask.replaced_tokens,
            max_tokens=ask.max_tokens,
            count=summariser.count,
            sources=_sources(asked, ask.reach),
        )
        checked = await run_off_loop_if_large(size, check)
        if checked.verdict is Verdict.ACCEPT:
            return replace(written, text=checked.text, tokens=checked.tokens)
        error = NotWorthIt(checked.reason) if checked.verdict is Verdict.SKIP else SummaryRejected(checked.reason)
        self._count_unused(written, error.code)
        raise error

    async def _try_twice(self, summariser: Summariser, ask: Ask) -> Summarised:
        """Ask again once, after a short pause or the one the provider wishes, if there is time for it."""
        try:
            return await write_summary(ask.prompt, summariser, max_tokens=ask.max_tokens)
        except ModelUnavailable as error:
            pause = RETRY_PAUSE_SECONDS if error.delay_seconds is None else error.delay_seconds
            if self.clock.monotonic() + pause >= self.deadline:
                raise
            log.info("summariser is asked again", model=summariser.model.name, error=error.code)
        await self.clock.sleep(pause)
        return await write_summary(ask.prompt, summariser, max_tokens=ask.max_tokens)

    def _priced(self, summariser: Summariser, answer: Summarised, tokens: tuple[int, int], seconds: float) -> Written:
        price = Written(
            text=answer.text,
            tokens=0,
            model=summariser.model.name,
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            seconds=seconds,
        )
        self.metrics.summary_written(
            model=price.model,
            input_tokens=price.input_tokens,
            output_tokens=price.output_tokens,
            seconds=seconds,
        )
        return price

    def _count_unused(self, written: Written, reason: str) -> None:
        tokens = written.input_tokens + written.output_tokens
        self.metrics.summary_unused(model=written.model, tokens=tokens, reason=reason)


async def first_success(summarisers: Sequence[Summariser], attempt: Callable[[Summariser], Awaitable[T]]) -> T:
    """Return what the first summariser achieves that does not fail; raise the last one's error where all do."""
    last: ThroughlineError = SummaryRejected("There is no summary model to ask.")
    for summariser in summarisers:
        try:
            return await attempt(summariser)
        except SUMMARISER_ERRORS as error:
            last = error
    raise last


def _sources(asked: str, reach: tuple[int, int]) -> Sources:
    """What is merged is the record of a merge: nothing is added to it."""
    record, existing = unframed(CONVERSATION_TAG, asked), unframed(EXISTING_TAG, asked)
    return Sources(record, existing, reach) if record else Sources(existing, "", reach)


def _tokens(summariser: Summariser, ask: Ask, answer: Summarised) -> tuple[int, int]:
    """Return what was read and what was written; a provider that reports no usage is taken to count like us."""
    reported, written = answer.usage.input_tokens, answer.usage.output_tokens
    return (
        _request_tokens(ask.prompt, summariser) if reported is None else reported,
        summariser.count(answer.text) if written is None else written,
    )


def _request_tokens(prompt: Prompt, summariser: Summariser) -> int:
    texts = [prompt.system, *(text_of(message.content) for message in prompt.messages)]
    return sum(summariser.count(text) for text in texts)
