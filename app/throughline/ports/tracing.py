"""The interface for traces: which parts of a turn are recorded as spans, and the span under way.

The root of a trace is begun with `Tracing`. Everything below it calls `traced`, which finds the span under way in a
context variable. Without one, as always while tracing is off, nothing is recorded.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar, Token, copy_context
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from throughline.domain.basic_types import SessionId
from throughline.domain.message import ToolCall
from throughline.domain.prompt import AnswerComplete, ModelRequest
from throughline.domain.run import Outcome, Run, RunStatus
from throughline.domain.summary import CompactionResult
from throughline.domain.tool import ToolOutcome
from throughline.domain.usage_report import CallPurpose

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SummaryTrace:
    """The root of a trace without a turn: a summary that is written in the background or on demand."""

    name: str
    session_id: SessionId
    agent: str


@dataclass(frozen=True, slots=True)
class StepPart:
    """A step of the service's own work, such as a node of the graph."""

    name: str


@dataclass(frozen=True, slots=True)
class CompactionPart:
    """A compaction with its trigger and the action that was planned."""

    trigger: str
    action: str


@dataclass(frozen=True, slots=True)
class ModelCallPart:
    """One try of a model call. `model` is the full name, `address` the server's, '' for the provider's own."""

    model: str
    address: str
    purpose: CallPurpose
    request: ModelRequest


@dataclass(frozen=True, slots=True)
class EmbeddingPart:
    """A request to the embedding model with this full name."""

    model: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A call of one of the agent's tools."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class StatementPart:
    """A database statement. `sql` has no parameters in it."""

    sql: str


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The outcome of a turn, and the status that was stored, which may differ from it."""

    outcome: Outcome
    status: RunStatus


TracedPart: TypeAlias = StepPart | CompactionPart | ModelCallPart | EmbeddingPart | ToolCallPart | StatementPart
PartResult: TypeAlias = AnswerComplete | CompactionResult | ToolOutcome | TurnEnd


class Span(Protocol):
    """A part of a trace under way."""

    @property
    def trace_id(self) -> str:
        """The id of the trace in hexadecimal digits; '' if it is not recorded."""

    def begin(self, part: TracedPart) -> "Span":
        """Return a new span below this one."""

    def add_result(self, result: PartResult) -> None:
        """Record the result of the part."""

    def end(self, error: BaseException | None) -> None:
        """End the span, with the error that ended the part."""


class Tracing(Protocol):
    """The recorder of traces."""

    def begin_turn(self, run: Run) -> Span:
        """Return the root span of an attempt of the run. In the first attempt it includes the wait in the queue."""

    def begin_summary(self, summary: SummaryTrace) -> Span:
        """Return the root span of a summary that is written outside turns: in the background, or on demand."""


class NoSpan:
    """The span of everything that is not recorded."""

    trace_id = ""

    def begin(self, part: TracedPart) -> Span:
        """Return this span: nothing below it is recorded either."""
        del part
        return self

    def add_result(self, result: PartResult) -> None:
        pass

    def end(self, error: BaseException | None) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, places: TracebackType | None
    ) -> None:
        pass


NO_SPAN = NoSpan()
_present: ContextVar[Span] = ContextVar("span", default=NO_SPAN)


class NoTracing:
    """The recorder of a process whose tracing is off."""

    def begin_turn(self, run: Run) -> Span:
        del run
        return NO_SPAN

    def begin_summary(self, summary: SummaryTrace) -> Span:
        del summary
        return NO_SPAN


NO_TRACING = NoTracing()


class SpanUnderWay:
    """A context manager in which a span is the one under way; the span ends with it.

    It is a class of its own because a generator would cost several times as much.
    """

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        """Prepare the context for a span that has begun."""
        self._span = span
        self._token: Token[Span] | None = None

    def __enter__(self) -> Span:
        self._token = _present.set(self._span)
        return self._span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, places: TracebackType | None
    ) -> None:
        if self._token is not None:
            _present.reset(self._token)
        self._span.end(error)


def traced(part: TracedPart) -> SpanUnderWay | NoSpan:
    """Return a context manager that records its block as a span below the one under way."""
    present = _present.get()
    return NO_SPAN if present is NO_SPAN else SpanUnderWay(present.begin(part))


def create_untraced_task(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":  # Any: what asyncio never looks at
    """Return a new task whose work is not recorded, because it belongs to other turns as well."""
    context = copy_context()
    context.run(_present.set, NO_SPAN)
    return asyncio.create_task(work, context=context)
