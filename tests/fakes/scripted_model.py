"""A chat model that answers from a script: the fake behind the turn's ChatModel port."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import ThroughlineError
from throughline.domain.message import ToolCall
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.domain.prompt import (
    AnswerComplete,
    ModelEvent,
    ModelParameters,
    ModelRequest,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
    Usage,
)
from throughline.domain.reasoning import Reasoning
from throughline.llm.offline import OfflineModel
from throughline.ports.models import ChatModel, FormatSupport
from throughline.turn.summary.summariser import EXTRACTING_MODEL


@dataclass(frozen=True, slots=True)
class Say:
    """Answer with this text after `thinks`, word by word; wait for `gate` before the last word."""

    text: str
    gate: asyncio.Event | None = None
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = "stop"
    thinks: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """Answer with tool calls after `thinks`, of which the model wants `parts` back; streamed calls come in pieces."""

    calls: tuple[ToolCall, ...]
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    thinks: str = ""
    parts: tuple[JsonObject, ...] = ()
    is_streamed: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """Show some text after `thinks` and pieces of calls after it, then raise."""

    error: ThroughlineError
    shown: str = ""
    thinks: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Break:
    """Raise something nobody planned for, a cancellation for example: what a dying process looks like from inside."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Hang:
    """Show some text after `thinks` and pieces of calls after it, then say nothing for ever."""

    shown: str = ""
    thinks: str = ""
    calls: tuple[ToolCall, ...] = ()


Step: TypeAlias = Say | Call | Fail | Hang | Break


class ScriptedModel:
    """Plays its steps in order and keeps every request; a call beyond the script fails the test."""

    name = "scripted"
    calibration_key = "scripted"
    address = ""
    has_known_tokenizer = True
    is_priced = True

    def __init__(self, *steps: Step, context_limit: int = 8192) -> None:
        self.context_limit = context_limit
        self.window_origin = WindowOrigin.TABLE
        self.times_asked = 0
        self.requests: list[ModelRequest] = []
        self._steps = list(steps)
        self.format_support = FormatSupport.SCHEMA
        self.by_request: Callable[[ModelRequest], Step] | None = None

    def script(self, *steps: Step) -> None:
        self._steps.extend(steps)

    @property
    def unused(self) -> int:
        return len(self._steps)

    @property
    def window(self) -> ModelWindow:
        return ModelWindow(self.context_limit, self.window_origin)

    async def ask_window(self) -> None:
        self.times_asked += 1

    def check_parameters(self, parameters: ModelParameters) -> None:
        """Take all."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        self.requests.append(request)
        step = self._next(request)
        for piece in _words(step.thinks) if not isinstance(step, Break) and step.thinks else ():
            yield ReasoningPiece(piece)
        for piece in _shown(step):
            yield TextPiece(piece)
        for call_piece in _call_pieces(step):
            yield call_piece
        end = await _end_of(step)
        if isinstance(step, Say):
            yield TextPiece(_words(step.text)[-1])
        yield end

    def _next(self, request: ModelRequest) -> Step:
        if self.by_request is not None:
            return self.by_request(request)
        assert self._steps, "the model was called more often than the test's script says"
        return self._steps.pop(0)


class ScriptedModels:
    """Hands out one scripted model under every name, or others by name; `offline` is the service's own."""

    def __init__(self, model: ChatModel, **others: ChatModel) -> None:
        self._model = model
        self._others = others

    def get(self, model: str, base_url: str | None = None, api_key_env: str | None = None) -> ChatModel:
        del base_url, api_key_env
        extracting = {EXTRACTING_MODEL: OfflineModel()}
        return {**extracting, **self._others}.get(model, self._model)


def _shown(step: Step) -> Sequence[str]:
    match step:
        case Say(text=text):
            return _words(text)[:-1]
        case Call(text=shown) | Fail(shown=shown) | Hang(shown=shown):
            return [shown] if shown else []
        case Break():
            return []


def _call_pieces(step: Step) -> Sequence[ToolCallPiece]:
    """Return the calls that are streamed in pieces of three characters, which take turns."""
    match step:
        case Call(calls=calls, is_streamed=True) | Fail(calls=calls) | Hang(calls=calls):
            longest = max((len(call.arguments) for call in calls), default=0)
            cut = [
                ToolCallPiece(index, call.id, call.name, call.arguments[start : start + 3])
                for start in range(0, longest, 3)
                for index, call in enumerate(calls)
            ]
            return [piece for piece in cut if piece.text]
        case _:
            return []


async def _end_of(step: Step) -> ModelEvent:
    match step:
        case Say(text=text, gate=gate, usage=usage, finish_reason=reason):
            if gate is not None:
                await gate.wait()
            return AnswerComplete(text, (), usage, reason, reasoning=_thought(step))
        case Call(calls=calls, text=text, usage=usage):
            return AnswerComplete(text, calls, usage, "tool_calls", reasoning=_thought(step))
        case Fail(error=error):
            raise error
        case Break(error=broken):
            raise broken
        case Hang():
            await asyncio.Event().wait()
            raise AssertionError("nobody sets this event")


def _thought(step: Say | Call) -> Reasoning | None:
    parts = step.parts if isinstance(step, Call) else ()
    return Reasoning(step.thinks, parts, ScriptedModel.calibration_key) if step.thinks or parts else None


def _words(text: str) -> Sequence[str]:
    parts = text.split(" ")
    return [*(part + " " for part in parts[:-1]), parts[-1]]
