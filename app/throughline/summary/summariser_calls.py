"""The failure ladder of one compaction's model calls: one retry, then the fallback model, each in a share of the time.

Used by `stretches`; it also keeps what was paid, and which model was being asked when the time ran out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import structlog

from throughline.context.frame import unframed
from throughline.context.summaries.summary_check import Sources
from throughline.context.summaries.transcript import CONVERSATION_TAG, EXISTING_TAG
from throughline.domain.clock import Clock
from throughline.domain.errors import ContextOverflow, ModelRejected, ModelUnavailable, ThroughlineError
from throughline.domain.message import text_of
from throughline.domain.prompt import Prompt
from throughline.execution.off_loop import run_off_loop_if_large
from throughline.ports.metrics import Metrics
from throughline.summary.reading_pace import ReadingPace
from throughline.summary.summariser import (
    NotWorthIt,
    Summarised,
    Summariser,
    SummaryRejected,
    check_answer,
    write_summary,
)
from throughline.summary.summariser_health import SummariserHealth

T = TypeVar("T")
RETRY_PAUSE_SECONDS = 0.5
SUMMARISER_ERRORS = (ModelRejected, ModelUnavailable, SummaryRejected)
"""What the next summariser may do better."""

FAIR_SHARE = 0.4
"""A call that was given less of the time limit says nothing of the model."""

FIRST_SHARE = 0.7
"""Of the time left a summariser has so much while another one stands behind it: half would be too little for many that
are only slow, and the other one is there for those that hang."""

log = structlog.get_logger(__name__)


class SummariserTooSlow(ModelUnavailable):
    """The summary model did not answer within its share of the time."""

    code = "summariser_too_slow"


@dataclass(frozen=True, slots=True)
class Ask:
    """One text to be written. `replaced_tokens` is what it would stand for, `max_tokens` its most; both our counts.

    `reach` is the first and the last position it would stand for. `may_be_unchanged`: a model that says twice that the
    existing summary still says all that is worth saying is believed.
    """

    prompt: Prompt
    max_tokens: int
    replaced_tokens: int
    reach: tuple[int, int]
    may_be_unchanged: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """A text that may serve as a summary, and what it cost."""

    text: str
    tokens: int
    model: str
    input_tokens: int
    output_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """The call under way: whom it asks, how much it is given to read, and from when to when it may last."""

    summariser: Summariser
    tokens: int
    began: float
    until: float


@dataclass(slots=True)
class SummariserCalls:
    """All model calls of one compaction, which end at `deadline` (of `clock.monotonic`).

    `fair_seconds` is what a call must have had before being cut off counts as a failure of the model. `under_way` stays
    set where the time limit cuts a call off. `unsaved` is a text that came back and is not stored yet, `kept` what was
    stored. `too_slow` names the models that were cut off: while another is there they are not asked again.
    `share_ends` is when the time of the summariser whose turn it is ends, None where it has all that is left.
    """

    clock: Clock
    metrics: Metrics
    health: SummariserHealth
    pace: ReadingPace
    deadline: float
    fair_seconds: float
    under_way: _UnderWay | None = None
    unsaved: Written | None = None
    kept: list[Written] = field(default_factory=list)
    too_slow: set[str] = field(default_factory=set)
    share_ends: float | None = None

    async def first_success(
        self, summarisers: Sequence[Summariser], attempt: Callable[[Summariser], Awaitable[T]]
    ) -> T:
        """Return what the first summariser achieves that does not fail, each in its share of the time left.

        Where none does, raise NotWorthIt if that is what one of them found, else the last one's error.
        """
        not_worth: NotWorthIt | None = None
        last: ThroughlineError = SummaryRejected("There is no summary model to ask.")
        for index, summariser in enumerate(summarisers):
            behind = len(summarisers) - index - 1
            if behind and summariser.key in self.too_slow:
                continue
            self.share_ends = self._share(behind)
            try:
                return await attempt(summariser)
            except NotWorthIt as error:
                not_worth = error
            except SUMMARISER_ERRORS as error:
                last = error
        raise not_worth or last

    async def ask(self, summariser: Summariser, ask: Ask) -> Written:
        """Have a text written and checked.

        Raises SummariserResting, SummariserTooSlow, SummaryRejected and the model's errors, and NotWorthIt, which is no
        failure.
        """
        asked_tokens = await run_off_loop_if_large(
            _asked_characters(ask), partial(summariser.prompt_tokens, ask.prompt)
        )
        self.health.take_leave(summariser)
        now = self.clock.monotonic()
        until = self.deadline if self.share_ends is None else self.share_ends
        self.under_way = _UnderWay(summariser, asked_tokens, now, until)
        try:
            async with asyncio.timeout(None if self.share_ends is None else max(until - now, 0)):
                written = await self._try_twice(summariser, ask, until)
        except TimeoutError:
            self.too_slow.add(summariser.key)
            self._cut_off()
            raise SummariserTooSlow("The summary model did not answer in time.") from None
        except (*SUMMARISER_ERRORS, NotWorthIt) as error:
            self._note(summariser, error)
            raise
        except BaseException:
            self.health.released(summariser)
            raise
        self.health.answered(summariser)
        self.pace.answered(summariser.key, asked_tokens, written.seconds)
        self.under_way, self.unsaved = None, written
        return written

    def tokens_in_time(self, summariser: Summariser) -> int | None:
        """Return what it is known to read in a fair share of the time, None where nothing is known or a turn waits."""
        return None if self.health.is_hurried else self.pace.tokens_within(summariser.key, self.fair_seconds)

    def too_long(self, summariser: Summariser) -> None:
        """To it everything of this session is too long."""
        self.health.is_of_no_use(summariser)

    def saved(self) -> None:
        """The text that came back last is stored."""
        if self.unsaved is not None:
            self.kept.append(self.unsaved)
        self.unsaved = None

    def timed_out(self) -> None:
        """The time limit cut the work off: so it did the call under way, and a text that was not stored is lost."""
        self._cut_off()
        if self.unsaved is not None:
            self._count_unused(self.unsaved, "timeout")
        self.unsaved = None

    def wasted(self, reason: str) -> None:
        """All that was written is not going to be used."""
        for written in self.kept:
            self._count_unused(written, reason)
        self.kept.clear()

    def _share(self, behind: int) -> float | None:
        """Return when the summariser's time is up, None where no other stands behind it: it has all that is left."""
        now = self.clock.monotonic()
        return now + FIRST_SHARE * (self.deadline - now) if behind else None

    def _note(self, summariser: Summariser, error: ThroughlineError) -> None:
        if isinstance(error, NotWorthIt):
            self.health.answered(summariser)
        elif isinstance(error, ContextOverflow):
            self.health.met_overflow(summariser)
        else:
            self.health.failed(summariser, error)
        self.under_way = None

    def _cut_off(self) -> None:
        call, self.under_way = self.under_way, None
        if call is not None:
            had = min(call.until, self.deadline) - call.began
            self.health.cut_off(call.summariser, had_its_share=had >= self.fair_seconds)
            if not self.health.is_hurried:
                self.pace.cut_off(call.summariser.key, call.tokens, had)

    async def _try_twice(self, summariser: Summariser, ask: Ask, until: float) -> Written:
        """Ask again once: after a short pause or the one the provider wishes, or at once where a text is of no use.

        Only if there is time for it: for another text, as much as the first one took.
        """
        began = self.clock.monotonic()
        try:
            return await self._write_and_check(summariser, ask)
        except (ModelUnavailable, SummaryRejected) as error:
            took = self.clock.monotonic() - began
            pause = pause_seconds(error) if isinstance(error, ModelUnavailable) else 0.0
            needed = took if isinstance(error, SummaryRejected) else pause
            if began + took + needed >= until:
                raise
            log.info("summariser is asked again", model=summariser.model.name, error=error.code)
        if pause:
            await self.clock.sleep(pause)
        return await self._write_and_check(summariser, replace(ask, may_be_unchanged=not pause))

    async def _write_and_check(self, summariser: Summariser, ask: Ask) -> Written:
        began = self.clock.monotonic()
        answer = await write_summary(ask.prompt, summariser, max_tokens=ask.max_tokens)
        seconds = self.clock.monotonic() - began
        asked = text_of(ask.prompt.messages[0].content)
        size = len(answer.text) + len(asked)
        tokens = await run_off_loop_if_large(size, partial(_tokens, summariser, ask, answer))
        written = self._priced(summariser, answer, tokens, seconds)
        try:
            checked = await check_answer(
                answer,
                summariser,
                replaced_tokens=ask.replaced_tokens,
                max_tokens=ask.max_tokens,
                sources=_sources(asked, ask),
            )
        except (NotWorthIt, SummaryRejected) as error:
            self._count_unused(written, error.code)
            raise
        return replace(written, text=checked.text, tokens=checked.tokens)

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


def pause_seconds(error: ModelUnavailable) -> float:
    """Return how long to wait before a model is asked again: as long as its provider wishes."""
    return RETRY_PAUSE_SECONDS if error.delay_seconds is None else error.delay_seconds


def _asked_characters(ask: Ask) -> int:
    return sum(len(text_of(message.content)) for message in ask.prompt.messages)


def _sources(asked: str, ask: Ask) -> Sources:
    """What is merged is the record of a merge: nothing is added to it."""
    record, existing = unframed(CONVERSATION_TAG, asked), unframed(EXISTING_TAG, asked)
    if not record:
        return Sources(existing, "", ask.reach)
    return Sources(record, existing, ask.reach, may_be_unchanged=ask.may_be_unchanged)


def _tokens(summariser: Summariser, ask: Ask, answer: Summarised) -> tuple[int, int]:
    """Return what was read and what was written; a provider that reports no usage is taken to count like us."""
    reported, written = answer.usage.input_tokens, answer.usage.output_tokens
    return (
        summariser.prompt_tokens(ask.prompt) if reported is None else reported,
        summariser.count(answer.text) if written is None else written,
    )
