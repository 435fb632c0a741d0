"""Retries of model calls: backoff with jitter, the provider's Retry-After, and one deadline for the whole turn.

No other module retries a turn's model call.
"""

import asyncio
import math
import random

import structlog

from throughline.domain.errors import AnswerTooLong, ModelRejected, ModelUnavailable, TurnTimeout, provider_words
from throughline.domain.events import AnswerReset
from throughline.domain.model_call import CallPurpose, ModelCall
from throughline.domain.prompt import AnswerComplete, ModelRequest, ReasoningDelta, TextDelta, Usage
from throughline.execution.backoff import doubled_backoff
from throughline.ports.metrics import count_cost
from throughline.ports.models import ChatModel
from throughline.ports.tracing import ModelCallPart, traced
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
    stream, left = model.stream(request), request.max_answer_bytes
    try:
        async for event in stream:
            match event:
                case TextDelta(text=text):
                    left -= len(text.encode())
                    _check_size(model, request, left)
                    turn.events.emit_text(text)
                case ReasoningDelta(text=text):
                    left -= len(text.encode())
                    _check_size(model, request, left)
                    turn.events.emit_reasoning(text)
                case AnswerComplete():
                    left -= sum(len((call.name + call.arguments).encode()) for call in event.tool_calls)
                    _check_size(model, request, left)
                    return event
    finally:
        await stream.aclose()
    raise AssertionError("a model stream ended without AnswerComplete and without an error")


def _check_size(model: ChatModel, request: ModelRequest, left_bytes: int) -> None:
    """Raise AnswerTooLong if answer and reasoning exceed the byte limit together. The caller then closes the stream."""
    if left_bytes < 0:
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
