"""Asking a model for a summary. `summarize_messages` can be used alone, outside any turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.context.policy import SummaryPolicy
from app.context.summary_check import Verdict, check_summary
from app.context.transcript import PROMPT_VERSION, chunk_for_summariser, read_hash, summary_request
from app.domain.clock import Clock
from app.domain.errors import AnswerIncomplete, PermanentError
from app.domain.message import Message
from app.domain.prompt import AnswerComplete, Usage
from app.domain.session import Session
from app.domain.summary import NewStretch
from app.domain.text import clean_text
from app.turn.ports import ChatModel, ModelRequest


class NotWorthIt(PermanentError):
    """The summary is no smaller than what it would replace; nothing is wrong."""

    code = "summary_not_worth_it"


class SummaryRejected(PermanentError):
    """What the summary model wrote cannot serve as a summary."""

    code = "summary_rejected"


@dataclass(frozen=True, slots=True)
class Summarised:
    """What the summary model wrote, and the tokens it reported."""

    text: str
    usage: Usage


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


async def summarize_messages(messages: Sequence[Message], existing_summary: str, summariser: Summariser) -> Summarised:
    """Return one text for `existing_summary` and `messages` together.

    The messages must fit the summary model's window (`chunks_for` cuts them so). No tools are offered.
    Raises the ModelRejected and ModelUnavailable families.
    """
    policy = replace(summariser.policy, max_tokens=summariser.max_tokens)
    prompt = summary_request(existing_summary, messages, policy, instructions=summariser.instructions)
    request = ModelRequest(prompt=prompt, tools=(), max_output_tokens=summariser.max_tokens)
    stream = summariser.model.stream(request)
    try:
        async for event in stream:
            if isinstance(event, AnswerComplete):
                return Summarised(text=clean_text(event.text).strip(), usage=event.usage)
    finally:
        await stream.aclose()
    raise AnswerIncomplete("The summary model ended without an answer.")


def chunks_for(summariser: Summariser, messages: Sequence[Message]) -> tuple[tuple[Message, ...], ...]:
    """Cut `messages` into stretches that fit the summary model's own window, in order."""
    room = summariser.window_tokens - summariser.max_tokens
    budget = int(room / summariser.factor) - summariser.max_tokens  # the existing summary is read as well
    return chunk_for_summariser(messages, budget_tokens=budget, count=summariser.count)


async def write_stretch(clock: Clock, summariser: Summariser, session: Session, chunk: Sequence[Message]) -> NewStretch:
    """Summarise `chunk` on top of the session's summary and check what came back.

    Raises NotWorthIt and SummaryRejected besides the model's errors.
    """
    began = clock.monotonic()
    existing = session.conversation_summary
    written = await summarize_messages(chunk, existing, summariser)
    checked = check_summary(
        written.text,
        replaced_tokens=session.summary_tokens + sum(message.token_count for message in chunk),
        max_tokens=summariser.max_tokens,
        count=summariser.count,
    )
    if checked.verdict is Verdict.SKIP:
        raise NotWorthIt(checked.reason)
    if checked.verdict is Verdict.REJECT:
        raise SummaryRejected(checked.reason)
    return NewStretch(
        from_position=session.summary_through_position + 1,
        through_position=chunk[-1].position,
        through_id=chunk[-1].id,
        text=checked.text,
        token_count=checked.tokens,
        model=summariser.model.name,
        prompt_version=PROMPT_VERSION,
        read_hash=read_hash(existing, chunk),
        duration_seconds=clock.monotonic() - began,
        input_tokens=written.usage.input_tokens or 0,
        output_tokens=written.usage.output_tokens or 0,
    )
