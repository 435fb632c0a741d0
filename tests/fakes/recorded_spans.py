"""Spans that stay in memory, as the tree that they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from fakes.stage import Stage
from throughline.tracing.otel_tracing import OtelTracing

BY_TIME = ("INSERT run_events", "INSERT token_calibration", "wait for connection")
"""Names, or parts of them, of spans that depend on time: events stored under way, and what is written behind turns."""


@dataclass(frozen=True, slots=True)
class RecordedSpans:
    """What a tracing has recorded."""

    exporter: InMemorySpanExporter
    provider: TracerProvider

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def named(self, beginning: str) -> list[ReadableSpan]:
        """Return the spans whose names begin so, in the order of their begin."""
        return sorted((span for span in self.all if span.name.startswith(beginning)), key=_began)

    def lines(self) -> list[str]:
        """Return the names of all spans, each below its parent and set in by its depth, in the order of their begin."""
        roots = [span for span in self.all if span.parent is None]
        return [line for root in sorted(roots, key=_began) for line in self._lines(root, 0)]

    def _lines(self, span: ReadableSpan, depth: int) -> list[str]:
        if any(name in span.name for name in BY_TIME):
            return []
        context = span.get_span_context()
        assert context is not None
        below = [one for one in self.all if one.parent is not None and one.parent.span_id == context.span_id]
        lines = [line for one in sorted(below, key=_began) for line in self._lines(one, depth + 1)]
        return ["  " * depth + span.name, *lines]

    def whole_text(self) -> str:
        """Return everything that would leave the process, as one text."""
        return "\n".join(span.to_json() for span in self.all)


def record_spans(stage: Stage, *, with_texts: bool = False, sample_ratio: float = 1.0) -> RecordedSpans:
    """Have the turns of the stage traced."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(ALWAYS_ON, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = OtelTracing(provider, sample_ratio=sample_ratio, with_texts=with_texts)
    stage.dependencies = replace(stage.dependencies, tracing=tracing)
    return RecordedSpans(exporter, provider)


def _began(span: ReadableSpan) -> tuple[int, int]:
    return span.start_time or 0, span.end_time or 0
