"""The exporter of traces: OTLP over HTTP, in the background, with a bounded queue and without any waiting turn.

Everything is set here and nothing is left to variables of the environment, which OpenTelemetry's SDK would read.
"""

import logging
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

from throughline.tracing.otel_tracing import OtelTracing

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
