"""Models that write summaries: what is known of one, and a single call of it.

`summarize_messages` works without a turn.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from throughline.context.calibration import scale
from throughline.context.policy import SummaryKind, SummaryPolicy
from throughline.context.summaries.check_summary import (
    MOST_CHARACTERS_PER_TOKEN,
    CheckedSummary,
    Sources,
    Verdict,
    check_summary,
)
from throughline.context.summaries.keep_lines import KEEP_TOKENS, split_answer
from throughline.context.summaries.render_summary import cut_back
from throughline.context.summaries.segment_ends import first_segment
from throughline.context.summaries.summary_prompt import (
    CONVERSATION_TAG,
    EXISTING_TAG,
    SMALLEST_BUDGET,
    TextRequest,
    chunk_for_summariser,
    summary_request,
)
from throughline.context.view.placeholder_texts import undelimited
from throughline.domain.errors import AnswerIncomplete, AnswerTooLong, PermanentError
from throughline.domain.message import Message, clean_text, text_of
from throughline.domain.prompt import AnswerComplete, ModelRequest, Prompt, Usage
from throughline.domain.reasoning import without_thinking
from throughline.domain.usage_report import CallPurpose
from throughline.execution.compute_threads import characters_of, run_off_loop_if_large
from throughline.ports.models import ChatModel
from throughline.ports.tracing import ModelCallPart, traced

LEAST_ANSWER_BYTES = 200_000
"""Bytes of an answer that are accepted in any case: reasoning models write more than the limit of their answer."""

LEAST_WINDOW, SMALL_WINDOW_PARTS = 3000, 16
"""Least window in tokens for which lines below `KEEP:` are requested; the divisor of a window for their tokens."""

SLACK_TOKENS = 64
"""Tokens kept free in a request, because the whole may count more tokens than its parts do."""


ONLY_LINES = "The summary model named what to keep and wrote no summary."


class NotWorthIt(PermanentError):
    """Exception for a summary that is no smaller than what it would replace. It does not count as a failure."""

    code = "summary_not_worth_it"


class SummaryRejected(PermanentError):
    """Exception for an answer that cannot serve as a summary, and for instructions that no model has room for."""

    code = "summary_rejected"


@dataclass(frozen=True, slots=True)
class Summarised:
    """The summary model's answer and its reported tokens; `has_calls`: it called tools, although none were offered.

    `keep_lines` is the text below `KEEP:`, if that was requested. `is_cut`: the text reached the limit of the answer.
    """

    text: str
    usage: Usage
    has_calls: bool = False
    keep_lines: str = ""
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Summariser:
    """A summary model and how to use it.

    `count` counts the tokens of a text; times `factor` they are the model's. `max_tokens` is the largest summary by
    that count: the policy's maximum, or less in a small window. `window_tokens` is the summary model's window.
    """

    model: ChatModel
    policy: SummaryPolicy
    count: Callable[[str], int]
    max_tokens: int
    window_tokens: int
    factor: float = 1.15
    instructions: str = ""

    @property
    def key(self) -> str:
        """The key under which the model's failures are counted."""
        return self.model.calibration_key

    @property
    def instruction_tokens(self) -> int:
        """The model's tokens of the instructions."""
        return scale(self.count(self.instructions), self.factor)

    def request_tokens(self, max_tokens: int) -> int:
        """Return the most tokens, by our count, of a request that leaves room for a text of `max_tokens`."""
        return int((self.window_tokens - self.output_tokens(max_tokens)) / self._safe_factor)

    def prompt_tokens(self, prompt: Prompt) -> int:
        """Return the tokens of a request's texts by our count."""
        return sum(self.count(text) for text in (prompt.system, *(text_of(said.content) for said in prompt.messages)))

    def output_tokens(self, max_tokens: int) -> int:
        """Return `max_tokens`, which is by our count, converted to the model's count."""
        return math.ceil(max_tokens * self._safe_factor)

    @property
    def keep_tokens(self) -> int:
        """The tokens of an answer for lines below its summary that name facts.

        0 if no such lines are requested: the window is too small, or the policy wants the narrative alone.
        """
        is_asked = self.policy.kind is SummaryKind.HYBRID and self.window_tokens >= LEAST_WINDOW
        return min(KEEP_TOKENS, self.window_tokens // SMALL_WINDOW_PARTS) if is_asked else 0

    def transcript_tokens(self, request: Prompt, max_tokens: int) -> int:
        """Return the most tokens, by our count, of a transcript in `request`, which contains none yet."""
        return max(self.request_tokens(max_tokens) - self.prompt_tokens(request) - SLACK_TOKENS, SMALLEST_BUDGET)

    @property
    def _safe_factor(self) -> float:
        """The factor, but at least 1.

        A lower one is learned from prompts with tools, whose schemas we overcount; these requests have no tools.
        """
        return max(self.factor, 1.0)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for one text.

    `replaced_tokens` is the size of what it would replace, `max_tokens` its limit (our counts).

    `reach` is the first and last position it would cover; None: it is no summary, and is not checked.
    `may_be_unchanged`: the model may return the existing summary unchanged, because it has done so before.
    `keep_tokens` is the most tokens of the lines below the text that name facts to keep; 0: none are requested.
    """

    prompt: Prompt
    max_tokens: int
    replaced_tokens: int = 0
    reach: tuple[int, int] | None = None
    may_be_unchanged: bool = False
    keep_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """A text that may serve as a summary, its cost, and the lines below it that name facts to keep."""

    text: str
    tokens: int
    model: str
    input_tokens: int
    output_tokens: int
    seconds: float
    keep_lines: str = ""


async def first_chunk(rest: tuple[Message, ...], room_tokens: int, summariser: Summariser) -> tuple[Message, ...]:
    """Return the first messages of `rest`, for one segment, in at most `room_tokens`.

    A first group that alone is larger is shortened to fit.
    """
    count, most = summariser.count, summariser.policy.chunk_messages

    def choose() -> tuple[Message, ...]:
        chosen = first_segment(rest, room_tokens=room_tokens, max_messages=most, count=count)
        frame = summariser.prompt_tokens(summary_request("…", (), SummaryPolicy(), TextRequest(1, subjects=())))
        budget = room_tokens + frame + SLACK_TOKENS
        return chunk_for_summariser(chosen, budget_tokens=budget, count=count)[0]

    return await run_off_loop_if_large(characters_of(rest), choose)


async def summarize_messages(messages: Sequence[Message], existing_summary: str, summariser: Summariser) -> Summarised:
    """Return one text for `existing_summary` and `messages` together.

    The messages must fit the summary model's window. No tools are offered. Raises the ModelRejected and
    ModelUnavailable families.
    """
    asked = TextRequest(summariser.max_tokens, summariser.instructions)
    prompt = summary_request(existing_summary, messages, summariser.policy, asked)
    return await write_summary(prompt, summariser, max_tokens=summariser.max_tokens)


async def write_summary(
    prompt: Prompt,
    summariser: Summariser,
    *,
    max_tokens: int,
    keep_tokens: int = 0,
    heard: list[str] | None = None,
) -> Summarised:
    """Send one request for a text of at most `max_tokens`, by our count, and `keep_tokens` of lines below it.

    No tools are offered. An answer that reached its limit is cut back to its last whole line or sentence; a cut summary
    is marked and may become empty. `heard` gets the pieces of the answer as they arrive. Raises the
    ModelRejected and ModelUnavailable families.
    """
    output_tokens = summariser.output_tokens(max_tokens + keep_tokens)
    most = max(output_tokens * MOST_CHARACTERS_PER_TOKEN, LEAST_ANSWER_BYTES)
    request = ModelRequest(prompt=prompt, tools=(), max_output_tokens=output_tokens, max_answer_bytes=most)
    answer = await _collect(summariser.model, request, [] if heard is None else heard)
    text, lines = clean_text(answer.text).strip(), ""
    if keep_tokens:
        text, lines = split_answer(without_thinking(text))
    if answer.is_cut and lines:
        lines = lines.rpartition("\n")[0]
    elif answer.is_cut:
        text = cut_back(without_thinking(text))
    is_cut = answer.is_cut and not lines
    return Summarised(text, answer.usage, has_calls=bool(answer.tool_calls), keep_lines=lines, is_cut=is_cut)


async def check_answer(
    answer: Summarised, summariser: Summariser, *, replaced_tokens: int, max_tokens: int, sources: Sources
) -> CheckedSummary:
    """Return the answer in the form to store; large ones are checked in a thread.

    An answer that reached its limit may not be the existing summary again: what is new may be what is missing. Raises
    SummaryRejected for an unusable answer, NotWorthIt for one that is no smaller than what it would replace.
    """
    sources = replace(sources, may_be_unchanged=sources.may_be_unchanged and not answer.is_cut)
    check = partial(
        check_summary,
        "" if answer.has_calls else answer.text,
        replaced_tokens=replaced_tokens,
        max_tokens=max_tokens,
        count=summariser.count,
        sources=sources,
    )
    size = len(answer.text) + len(sources.record) + len(sources.existing)
    checked = await run_off_loop_if_large(size, check)
    if checked.verdict is Verdict.ACCEPT:
        return checked
    if checked.verdict is Verdict.SKIP:
        raise NotWorthIt(checked.reason)
    raise SummaryRejected(checked.reason if answer.text or not answer.keep_lines else ONLY_LINES)


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


def sources_of(asked: str, ask: Ask) -> Sources:
    """Return the texts against which the answer to `ask` is checked. In a merge, the merged texts are the record."""
    record, existing = undelimited(CONVERSATION_TAG, asked), undelimited(EXISTING_TAG, asked)
    if not record:
        return Sources(existing, "", ask.reach)
    return Sources(record, existing, ask.reach, may_be_unchanged=ask.may_be_unchanged)


def used_tokens(summariser: Summariser, ask: Ask, answer: Summarised) -> tuple[int, int]:
    """Return the tokens read and written; without a report of the provider, our own counts."""
    reported, written = answer.usage.input_tokens, answer.usage.output_tokens
    return (
        summariser.prompt_tokens(ask.prompt) if reported is None else reported,
        summariser.count(answer.text) if written is None else written,
    )
