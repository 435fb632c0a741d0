"""Retries of model calls: backoff with jitter, the provider's Retry-After, and one deadline for the whole turn.

No other module retries a turn's model call.
"""

import asyncio
import math
import random
import secrets
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import structlog

from throughline.domain.errors import (
    AnswerTooLong,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
    TurnTimeout,
    provider_words,
)
from throughline.domain.events import AnswerReset
from throughline.domain.message import ToolCall
from throughline.domain.prompt import (
    AnswerComplete,
    ModelEvent,
    ModelRequest,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
    Usage,
)
from throughline.domain.usage_report import CallPurpose, ModelCall
from throughline.execution.breaker import doubled_backoff
from throughline.ports.metrics import count_cost
from throughline.ports.models import ChatModel
from throughline.ports.tracing import ModelCallPart, traced
from throughline.turn.state import Turn

# Ids of the tool calls of one step, distinct from those of the run's earlier calls.
#
# Some servers number calls from 0 in every answer. A model knows only the ids in its prompt, which may no longer show
# earlier calls.


class CallIds:
    """The ids that readers and storage get for the calls of one step."""

    def __init__(self, taken: Collection[str]) -> None:
        """Give no call an id of `taken`."""
        self._taken = taken
        self._given: dict[str, str] = {}

    def of(self, call_id: str) -> str:
        """Return the id for the call that the model gave `call_id`: a new one if an earlier call has it."""
        if call_id not in self._given:
            self._given[call_id] = _new_id() if call_id in self._taken else call_id
        return self._given[call_id]

    def apply(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """Return the step's calls with their ids. Of several calls with one id, only the first has the id of `of`."""
        used: set[str] = set()
        changed = []
        for call in calls:
            call_id = self.of(call.id)
            call_id = _new_id() if call_id in used else call_id
            used.add(call_id)
            changed.append(replace(call, id=call_id))
        return tuple(changed)


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"


MAX_TRIES = 4
TRIES_BEFORE_FALLBACK = 2
"""Tries of a model after which a fallback model is called: it answers sooner than the first one may recover."""

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
PAUSE_BEFORE_FALLBACK = 3.0
"""Longest pause that a provider may ask for before a fallback model is called instead, in seconds."""

log = structlog.get_logger(__name__)


class NothingCame(ModelTimeout):
    """Error of a model that did not begin its answer in time; the next model is called without a further try."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a model is tried: at most `most_tries`, with no pause longer than `longest_pause` seconds.

    `first_piece_seconds` is the time in which each answer must begin, None for the provider's own limit.
    """

    most_tries: int = MAX_TRIES
    longest_pause: float = math.inf
    first_piece_seconds: float | None = None

    def has_another_try(self, tries: int, pause: float, error: ModelUnavailable) -> bool:
        """Return whether the model is called again after `tries` calls, the last of which failed with `error`."""
        return tries < self.most_tries and pause <= self.longest_pause and not isinstance(error, NothingCame)


WHOLE_TURN = Patience()


def patience_before_fallback(first_piece_seconds: float) -> Patience:
    """Return the patience with a model that has a fallback model."""
    return Patience(TRIES_BEFORE_FALLBACK, PAUSE_BEFORE_FALLBACK, first_piece_seconds)


async def call_model(
    turn: Turn,
    model: ChatModel,
    request: ModelRequest,
    *,
    patience: Patience = WHOLE_TURN,
) -> AnswerComplete:
    """Stream one answer to the readers and return it as a whole.

    Raises a ModelRejected error at once. Raises a ModelUnavailable error once `patience` or the turn's deadline allows
    no further try. Raises TurnTimeout at the deadline.
    """
    tries = 0
    while True:
        tries += 1
        try:
            answer = await _before_deadline(turn, model, request, patience.first_piece_seconds)
        except ModelUnavailable as error:
            _record(turn, model, error.usage)
            turn.dependencies.metrics.model_failed(model=model.name, error=error.code)
            pause = _pause(error, tries)
            is_late = turn.dependencies.clock.monotonic() + pause >= turn.deadline
            if is_late or not patience.has_another_try(tries, pause, error):
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
        if request.is_shown:
            reset_shown_text(turn)
        await turn.dependencies.clock.sleep(pause)


def _record(turn: Turn, model: ChatModel, usage: Usage | None) -> None:
    """Record a call that was paid; `usage` is None for a failed call of which nothing is known."""
    if usage is not None:
        turn.calls.add(call := ModelCall(model.name, CallPurpose.ANSWER, usage))
        count_cost(turn.dependencies.metrics, call)


async def _before_deadline(
    turn: Turn, model: ChatModel, request: ModelRequest, first_piece_seconds: float | None
) -> AnswerComplete:
    left = turn.deadline - turn.dependencies.clock.monotonic()
    part = ModelCallPart(model.name, model.address, CallPurpose.ANSWER, request)
    try:
        with traced(part) as span:
            async with asyncio.timeout(max(left, 0)):
                answer = await _stream(turn, model, request, first_piece_seconds)
            span.add_result(answer)
            return answer
    except TimeoutError as error:
        seconds = turn.dependencies.config.deadline_seconds
        raise TurnTimeout(
            f"The model did not finish within the turn's {seconds:g} seconds. Send the message again."
        ) from error


async def _stream(
    turn: Turn, model: ChatModel, request: ModelRequest, first_piece_seconds: float | None
) -> AnswerComplete:
    call_ids = CallIds(request.taken_call_ids)
    stream = _begun_in_time(model.stream(request), model, first_piece_seconds)
    said = called = 0
    try:
        async for event in stream:
            if isinstance(event, AnswerComplete):
                called = sum(len((call.name + call.arguments).encode()) for call in event.tool_calls)
                _check_size(model, request, said + called)
                return replace(event, tool_calls=call_ids.apply(event.tool_calls))
            size = len(event.text.encode())
            said, called = (said, called + size) if isinstance(event, ToolCallPiece) else (said + size, called)
            _check_size(model, request, said + called)
            _show(turn, request, event, call_ids)
    finally:
        await stream.aclose()
    raise AssertionError("a model stream ended without AnswerComplete and without an error")


async def _begun_in_time(
    stream: AsyncGenerator[ModelEvent], model: ChatModel, seconds: float | None
) -> AsyncGenerator[ModelEvent]:
    """Yield the events of `stream`. Raises NothingCame if the first one does not come within `seconds`."""
    async with aclosing(stream):
        try:
            async with asyncio.timeout(seconds):
                first = await anext(stream, None)
        except TimeoutError as error:
            raise NothingCame(f"{model.name}: the model did not begin its answer within {seconds:g} seconds") from error
        if first is not None:
            yield first
        async for event in stream:
            yield event


def _show(
    turn: Turn, request: ModelRequest, piece: TextPiece | ReasoningPiece | ToolCallPiece, call_ids: CallIds
) -> None:
    """Show readers a piece of the answer, unless it belongs to a call that is forbidden and so will not be made."""
    if not request.is_shown:
        return
    match piece:
        case TextPiece(text=text):
            turn.events.emit_text(text)
        case ReasoningPiece(text=text):
            turn.events.emit_reasoning(text)
        case ToolCallPiece():
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
