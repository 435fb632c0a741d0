"""The Tracing port implemented with OpenTelemetry's SDK."""

import random
import time

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import Status, StatusCode, Tracer, format_trace_id, set_span_in_context

from throughline.domain.basic_types import SessionId
from throughline.domain.run import Run
from throughline.ports.tracing import NO_SPAN, PartResult, Span, SummaryTrace, TracedPart
from throughline.tracing.attributes import (
    Description,
    TraceContext,
    describe,
    describe_summary,
    describe_turn,
    error_type,
    read_result,
)

NANOSECONDS = 1_000_000_000
WAIT_IN_QUEUE = Description("wait in queue", {})


class OtelTracing:
    """The recorder of traces. Its provider is never made the global one, so that no library traces anything."""

    def __init__(self, provider: TracerProvider, *, sample_ratio: float = 1.0, with_texts: bool = False) -> None:
        """Record `sample_ratio` of all traces, and users' texts only `with_texts`."""
        self._tracer = provider.get_tracer("throughline")
        self._sample_ratio = sample_ratio
        self._with_texts = with_texts

    def begin_turn(self, run: Run) -> Span:
        """Return the root span of an attempt of the run.

        In the first attempt it begins with the wait in the queue. Only the length of the wait is taken from the
        database's clock, so that the clocks of two machines do not mix in one trace.
        """
        if self._is_left_out():
            return NO_SPAN
        now = time.time_ns()
        waited = _waited_seconds(run)
        began = now if waited is None else now - int(waited * NANOSECONDS)
        root = self._root(describe_turn(run, with_texts=self._with_texts), run.session_id, began)
        if waited is not None:
            root.begin_at(WAIT_IN_QUEUE, began).end(None)
        return root

    def begin_summary(self, summary: SummaryTrace) -> Span:
        """Return the root span of a summary that is written outside turns: in the background, or on demand."""
        if self._is_left_out():
            return NO_SPAN
        return self._root(describe_summary(summary), summary.session_id, time.time_ns())

    def _is_left_out(self) -> bool:
        return random.random() >= self._sample_ratio  # noqa: S311  # chooses samples, guards no secret

    def _root(self, description: Description, session_id: SessionId, began: int) -> "RecordedSpan":
        context = TraceContext(str(session_id), self._with_texts)
        span = self._tracer.start_span(
            description.name, kind=description.kind, attributes=description.attributes, start_time=began
        )
        return RecordedSpan(_Trace(self._tracer, context), span)


class _Trace:
    """One trace. After the end of its root no span is added: such work belongs to other turns as well."""

    __slots__ = ("context", "is_open", "tracer")

    def __init__(self, tracer: Tracer, context: TraceContext) -> None:
        self.tracer = tracer
        self.context = context
        self.is_open = True


class RecordedSpan:
    """A span that is exported after its end."""

    __slots__ = ("_parent", "_span", "_trace")

    def __init__(self, trace: _Trace, span: OtelSpan, parent: "RecordedSpan | None" = None) -> None:
        """Wrap a span that has begun; `parent` is None for a root."""
        self._trace = trace
        self._span = span
        self._parent = parent

    @property
    def trace_id(self) -> str:
        """The id of the trace in hexadecimal digits."""
        return format_trace_id(self._span.get_span_context().trace_id)

    def begin(self, part: TracedPart) -> Span:
        """Return a new span below this one, or one that records nothing if the trace has ended."""
        if not self._trace.is_open:
            return NO_SPAN
        return self.begin_at(describe(part, self._trace.context))

    def begin_at(self, description: Description, began: int | None = None) -> "RecordedSpan":
        """Return a new span below this one that began at a time in nanoseconds, None for now."""
        span = self._trace.tracer.start_span(
            description.name,
            set_span_in_context(self._span),
            kind=description.kind,
            attributes=description.attributes,
            start_time=began,
        )
        return RecordedSpan(self._trace, span, self)

    def add_result(self, result: PartResult) -> None:
        """Add the attributes of the result; a failure makes the span an erroneous one."""
        found = read_result(result, with_texts=self._trace.context.with_texts)
        self._span.set_attributes(found.attributes)
        if found.error:
            self._set_error(found.error)

    def end(self, error: BaseException | None) -> None:
        """End the span, and with a root its trace."""
        if error is not None:
            self._set_error(error_type(error))
        self._span.end()
        if self._parent is None:
            self._trace.is_open = False

    def _set_error(self, kind: str) -> None:
        """Set the error without a description: texts of errors may have users' words in them."""
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR))


def _waited_seconds(run: Run) -> float | None:
    """Return how long the run waited for its first attempt, None for later attempts."""
    if run.started_at is None or run.attempt > 1:
        return None
    return max((run.started_at - run.created_at).total_seconds(), 0.0)
