"""The Tracing port implemented with OpenTelemetry's SDK, and the export: OTLP over HTTP, in the background.

Everything is set here and nothing is left to variables of the environment, which OpenTelemetry's SDK would read.
"""

import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
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
        found = read_result(result, with_texts=self._trace.context.with_texts)
        self._span.set_attributes(found.attributes)
        if found.error:
            self._set_error(found.error)

    def end(self, error: BaseException | None) -> None:
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


QUEUED_SPANS = 8_192
"""Spans that wait for the exporter; further ones are dropped."""

BATCH_SPANS = 512
BATCH_MILLISECONDS = 1_000
EXPORT_SECONDS = 5.0
"""Time limit of one batch with its retries."""

CLOSE_SECONDS = 1.5
"""How long the last spans may take at shutdown."""

LAST_SECONDS = 0.2
"""Time for the log line about spans that were lost at shutdown."""

LOG_SECONDS = 60.0
"""Least time between two log lines about failed exports."""

EXPORTER_LOGGER = "opentelemetry.exporter.otlp"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TracingConfig:
    """Where traces are sent, with which HTTP headers, which share of them, and whether with users' texts.

    `service` has the attributes of this process: its name, version and instance.
    """

    endpoint: str
    headers: Mapping[str, str] = field(default_factory=dict)
    sample_ratio: float = 1.0
    with_texts: bool = False
    service: Mapping[str, str] = field(default_factory=dict)


class Exporting:
    """The open tracing of a process."""

    def __init__(self, config: TracingConfig) -> None:
        """Start the thread that sends spans; the first batch connects."""
        logging.getLogger(EXPORTER_LOGGER).setLevel(logging.CRITICAL)  # LoggedExporter says it, and less often
        self._exporter: SpanExporter = OTLPSpanExporter(
            endpoint=config.endpoint,
            headers=config.headers,
            timeout=EXPORT_SECONDS,
            compression=Compression.Gzip,
        )
        processor = BatchSpanProcessor(
            LoggedExporter(self._exporter),
            max_queue_size=QUEUED_SPANS,
            schedule_delay_millis=BATCH_MILLISECONDS,
            max_export_batch_size=BATCH_SPANS,
            export_timeout_millis=EXPORT_SECONDS * 1_000,
        )
        self._provider = TracerProvider(ALWAYS_ON, Resource(dict(config.service)), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self.tracing = OtelTracing(self._provider, sample_ratio=config.sample_ratio, with_texts=config.with_texts)

    def close(self) -> None:
        """Send the last spans within CLOSE_SECONDS, then end all retries: the remaining spans are lost. It blocks."""
        closing = threading.Thread(target=self._provider.shutdown, name="close tracing", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        if closing.is_alive():
            self._exporter.shutdown()
            closing.join(LAST_SECONDS)


class LoggedExporter(SpanExporter):
    """An exporter that logs failures once in a while; the exporter's own lines come with each batch."""

    def __init__(self, exporter: SpanExporter) -> None:
        """Wrap `exporter`. One thread calls `export`."""
        self._exporter = exporter
        self._lost_spans = 0
        self._logged_at = float("-inf")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch. A failed one is lost."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._lost_spans += len(spans)
            self._log_loss()
        return result

    def shutdown(self) -> None:
        """Stop the exporter, which ends its retries."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return whether the exporter has sent what it holds."""
        return self._exporter.force_flush(timeout_millis)

    def _log_loss(self) -> None:
        now = time.monotonic()
        if now - self._logged_at < LOG_SECONDS:
            return
        log.warning("trace export failed", lost_spans=self._lost_spans, hint="check TRACING_ENDPOINT and its server")
        self._logged_at, self._lost_spans = now, 0
