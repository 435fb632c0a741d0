"""Retries of model calls: backoff with jitter, the provider's Retry-After, and one deadline for the whole turn.

No other module retries a turn's model call.
"""

import asyncio
import math
import random
from dataclasses import replace

import structlog

from throughline.domain.errors import AnswerTooLong, ModelRejected, ModelUnavailable, TurnTimeout, provider_words
from throughline.domain.events import AnswerReset
from throughline.domain.model_call import CallPurpose, ModelCall
from throughline.domain.prompt import AnswerComplete, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from throughline.execution.backoff import doubled_backoff
from throughline.ports.metrics import count_cost
from throughline.ports.models import ChatModel
from throughline.ports.tracing import ModelCallPart, traced
from throughline.turn.call_ids import CallIds
from throughline.turn.state import Turn

MAX_TRIES = 4
TRIES_BEFORE_FALLBACK = 2
"""Tries of a model after which a fallback model is called: it answers sooner than the first one may recover."""

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
PAUSE_BEFORE_FALLBACK = 3.0
"""Longest pause that a provider may ask for before a fallback model is called instead, in seconds."""

log = structlog.get_logger(__name__)


async def call_model(
    turn: Turn,
    model: ChatModel,
    request: ModelRequest,
    *,
    most_tries: int = MAX_TRIES,
    longest_pause: float = math.inf,
) -> AnswerComplete:
    """Stream one answer to the readers and return it as a whole.

    Raises a ModelRejected error at once. Raises a ModelUnavailable error after `most_tries`, or if the provider asks to
    wait longer than `longest_pause` or the turn's deadline allows. Raises TurnTimeout at the deadline.
    """
    tries = 0
    while True:
        tries += 1
        try:
            answer = await _before_deadline(turn, model, request)
        except ModelUnavailable as error:
            _record(turn, model, error.usage)
            turn.dependencies.metrics.model_failed(model=model.name, error=error.code)
            pause = _pause(error, tries)
            is_late = turn.dependencies.clock.monotonic() + pause >= turn.deadline
            if tries >= most_tries or is_late or pause > longest_pause:
                raise
            fields = {"error": error.code, "tries": tries, "pause": pause, **provider_words(error)}
            log.info("model call retried", model=model.name, **fields)
        except ModelRejected as error:
            _record(turn, model, error.usage)
            turn.dependencies.metrics.model_failed(model=model.name, error=error.code)
            raise
        else:
            _record(turn, model, answer.usage)
            return answer
        reset_shown_text(turn)
        await turn.dependencies.clock.sleep(pause)


def _record(turn: Turn, model: ChatModel, usage: Usage | None) -> None:
    """Record a call that was paid; `usage` is None for a failed call of which nothing is known."""
    if usage is not None:
        turn.calls.add(call := ModelCall(model.name, CallPurpose.ANSWER, usage))
        count_cost(turn.dependencies.metrics, call)


async def _before_deadline(turn: Turn, model: ChatModel, request: ModelRequest) -> AnswerComplete:
    left = turn.deadline - turn.dependencies.clock.monotonic()
    part = ModelCallPart(model.name, model.address, CallPurpose.ANSWER, request)
    try:
        with traced(part) as span:
            async with asyncio.timeout(max(left, 0)):
                answer = await _stream(turn, model, request)
            span.add_result(answer)
            return answer
    except TimeoutError as error:
        seconds = turn.dependencies.config.deadline_seconds
        raise TurnTimeout(
            f"The model did not finish within the turn's {seconds:g} seconds. Send the message again."
        ) from error


async def _stream(turn: Turn, model: ChatModel, request: ModelRequest) -> AnswerComplete:
    stream, call_ids = model.stream(request), CallIds(request.taken_call_ids)
    said = called = 0
    try:
        async for event in stream:
            if isinstance(event, AnswerComplete):
                called = sum(len((call.name + call.arguments).encode()) for call in event.tool_calls)
                _check_size(model, request, said + called)
                return replace(event, tool_calls=call_ids.apply(event.tool_calls))
            size = len(event.text.encode())
            said, called = (said, called + size) if isinstance(event, ToolCallDelta) else (said + size, called)
            _check_size(model, request, said + called)
            _show(turn, request, event, call_ids)
    finally:
        await stream.aclose()
    raise AssertionError("a model stream ended without AnswerComplete and without an error")


def _show(
    turn: Turn, request: ModelRequest, piece: TextDelta | ReasoningDelta | ToolCallDelta, call_ids: CallIds
) -> None:
    """Show readers a piece of the answer, unless it belongs to a call that is forbidden and so will not be made."""
    match piece:
        case TextDelta(text=text):
            turn.events.emit_text(text)
        case ReasoningDelta(text=text):
            turn.events.emit_reasoning(text)
        case ToolCallDelta():
            if request.may_call_tools:
                turn.events.emit_arguments(replace(piece, call_id=call_ids.of(piece.call_id)))


def _check_size(model: ChatModel, request: ModelRequest, used_bytes: int) -> None:
    """Raise AnswerTooLong if text, reasoning and calls exceed the byte limit. The caller then closes the stream."""
    if used_bytes > request.max_answer_bytes:
        raise AnswerTooLong(
            f"{model.name}: the answer was stopped, it was longer than the {request.max_answer_bytes} bytes "
            "an answer may have, its reasoning included. Ask for less at a time."
        )


def reset_shown_text(turn: Turn) -> None:
    """Emit `AnswerReset`, so that readers discard text and reasoning of the failed try.

    Nothing is emitted if readers were sent none.
    """
    if turn.events.has_shown:
        turn.events.emit(AnswerReset(turn.attempt))


def _pause(error: ModelUnavailable, tries: int) -> float:
    """Return the seconds to wait: the provider's Retry-After, or else an exponential backoff.

    The backoff doubles with each try, up to LONGEST_PAUSE_SECONDS; a random part of its upper half is dropped (jitter).
    """
    if error.delay_seconds is not None:
        return error.delay_seconds
    ceiling = doubled_backoff(tries, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    return ceiling * (0.5 + random.random() / 2)  # noqa: S311  # spreads retries, guards no secret
