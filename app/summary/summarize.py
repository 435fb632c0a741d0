"""Asking a model for a summary. `summarize_messages` can be used alone, outside any turn."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.context.policy import SummaryPolicy
from app.context.transcript import summary_request
from app.domain.errors import AnswerIncomplete, PermanentError
from app.domain.message import Message
from app.domain.prompt import AnswerComplete, ModelRequest, Prompt, Usage
from app.domain.text import clean_text
from app.ports.models import ChatModel


class NotWorthIt(PermanentError):
    """The summary is no smaller than what it would replace; nothing is wrong."""

    code = "summary_not_worth_it"


class SummaryRejected(PermanentError):
    """What the summary model wrote cannot serve as a summary."""

    code = "summary_rejected"


@dataclass(frozen=True, slots=True)
class Summarised:
    """What the summary model wrote, and the tokens it reported; `has_calls`: it called tools that it was not given."""

    text: str
    usage: Usage
    has_calls: bool = False


@dataclass(frozen=True, slots=True)
class Summariser:
    """A summary model and how to use it.

    `count` counts tokens of a text, `factor` turns them into the model's. `max_tokens` is what a summary may have by
    that count: the policy's own maximum, or less in a small window. `window_tokens` is the summary model's own.
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
        """Under what the model's failures are counted."""
        return self.model.calibration_key

    def request_tokens(self, max_tokens: int) -> int:
        """Return how large, by our count, a request may be that leaves room for a text of `max_tokens`."""
        return int((self.window_tokens - self.output_tokens(max_tokens)) / self._safe_factor)

    def output_tokens(self, max_tokens: int) -> int:
        """Return `max_tokens` as the model counts them."""
        return math.ceil(max_tokens * self._safe_factor)

    @property
    def _safe_factor(self) -> float:
        """The factor, but never below 1.

        One below is learned on prompts with tools, whose schemas we count too high; these requests have none.
        """
        return max(self.factor, 1.0)


async def summarize_messages(messages: Sequence[Message], existing_summary: str, summariser: Summariser) -> Summarised:
    """Return one text for `existing_summary` and `messages` together.

    The messages must fit the summary model's window. No tools are offered.
    Raises the ModelRejected and ModelUnavailable families.
    """
    policy = replace(summariser.policy, max_tokens=summariser.max_tokens)
    prompt = summary_request(existing_summary, messages, policy, instructions=summariser.instructions)
    return await write_summary(prompt, summariser, max_tokens=summariser.max_tokens)


async def write_summary(prompt: Prompt, summariser: Summariser, *, max_tokens: int) -> Summarised:
    """Send one request for a text of at most `max_tokens` by our count; no tools are offered.

    Raises the ModelRejected and ModelUnavailable families.
    """
    request = ModelRequest(prompt=prompt, tools=(), max_output_tokens=summariser.output_tokens(max_tokens))
    stream = summariser.model.stream(request)
    try:
        async for event in stream:
            if isinstance(event, AnswerComplete):
                text = clean_text(event.text).strip()
                return Summarised(text=text, usage=event.usage, has_calls=bool(event.tool_calls))
    finally:
        await stream.aclose()
    raise AnswerIncomplete("The summary model ended without an answer.")
