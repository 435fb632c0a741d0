"""Metrics, spans and token counters that remember what they were told."""

import threading
from dataclasses import dataclass, field

from fakes.waiting import ManualClock
from throughline.db.database import Database
from throughline.domain.run import Run
from throughline.llm.counters import CharsCounter
from throughline.ports.tracing import PartResult, Span, StatementPart, StepPart, SummaryTrace, TracedPart
from throughline.turn.worker.retention import Retention, RetentionConfig


class SilentMetrics:
    """Keeps every report as (name, fields)."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, dict[str, object]]] = []

    def turn_finished(self, *, agent: str, status: str, seconds: float) -> None:
        self.reports.append(("turn_finished", {"agent": agent, "status": status, "seconds": seconds}))

    def prompt_sent(self, *, model: str, tokens: int, window_tokens: int) -> None:
        self.reports.append(("prompt_sent", {"model": model, "tokens": tokens, "window_tokens": window_tokens}))

    def compaction_finished(self, *, cause: str, outcome: str, seconds: float, tokens_freed: int) -> None:
        fields = {"cause": cause, "outcome": outcome, "seconds": seconds, "tokens_freed": tokens_freed}
        self.reports.append(("compaction_finished", fields))

    def model_failed(self, *, model: str, error: str) -> None:
        self.reports.append(("model_failed", {"model": model, "error": error}))

    def model_paid(self, *, model: str, purpose: str, cost_usd: float) -> None:
        self.reports.append(("model_paid", {"model": model, "purpose": purpose, "cost_usd": cost_usd}))

    def compaction_measured(self, *, tokens_before: int, tokens_after: int) -> None:
        self.reports.append(("compaction_measured", {"tokens_before": tokens_before, "tokens_after": tokens_after}))

    def stage_fired(self, *, stage: str) -> None:
        self.reports.append(("stage_fired", {"stage": stage}))

    def summary_written(self, *, model: str, input_tokens: int, output_tokens: int, seconds: float) -> None:
        fields = {"model": model, "input_tokens": input_tokens, "output_tokens": output_tokens, "seconds": seconds}
        self.reports.append(("summary_written", fields))

    def summary_unused(self, *, model: str, tokens: int, reason: str) -> None:
        self.reports.append(("summary_unused", {"model": model, "tokens": tokens, "reason": reason}))

    def summary_failed(self, *, model: str, reason: str) -> None:
        self.reports.append(("summary_failed", {"model": model, "reason": reason}))

    def summary_breaker_read(self, *, model: str, is_open: bool) -> None:
        self.reports.append(("summary_breaker_read", {"model": model, "is_open": is_open}))

    def estimate_compared(self, *, model: str, estimated: int, reported: int) -> None:
        fields = {"model": model, "estimated": estimated, "reported": reported}
        self.reports.append(("estimate_compared", fields))

    def overflow_met(self, *, model: str) -> None:
        self.reports.append(("overflow_met", {"model": model}))

    def of(self, name: str) -> list[dict[str, object]]:
        return [fields for reported, fields in self.reports if reported == name]

    def job_ended(self, *, kind: str, outcome: str) -> None:
        self.reports.append(("job_ended", {"kind": kind, "outcome": outcome}))

    def jobs_waiting(self, *, kind: str, jobs: int, oldest_seconds: float) -> None:
        fields = {"kind": kind, "jobs": jobs, "oldest_seconds": oldest_seconds}
        self.reports.append(("jobs_waiting", fields))

    def jobs_taken(self, *, is_taking: bool) -> None:
        self.reports.append(("jobs_taken", {"is_taking": is_taking}))

    def retention_deleted(self, *, kind: str, count: int) -> None:
        self.reports.append(("retention_deleted", {"kind": kind, "count": count}))

    def retention_failed(self, *, kind: str) -> None:
        self.reports.append(("retention_failed", {"kind": kind}))

    def retention_out_of_time(self, *, kind: str) -> None:
        self.reports.append(("retention_out_of_time", {"kind": kind}))


@dataclass
class ListedSpan:
    """A span that lists the parts below it, the results, and how it ended."""

    part: TracedPart | Run | SummaryTrace
    trace_id: str = "1"
    below: list["ListedSpan"] = field(default_factory=list)
    results: list[PartResult] = field(default_factory=list)
    ends: list[BaseException | None] = field(default_factory=list)

    def begin(self, part: TracedPart) -> Span:
        self.below.append(new := ListedSpan(part))
        return new

    def add_result(self, result: PartResult) -> None:
        self.results.append(result)

    def end(self, error: BaseException | None) -> None:
        self.ends.append(error)


@dataclass
class ListedTracing:
    roots: list[ListedSpan] = field(default_factory=list)

    def begin_turn(self, run: Run) -> Span:
        self.roots.append(root := ListedSpan(run))
        return root

    def begin_summary(self, summary: SummaryTrace) -> Span:
        self.roots.append(root := ListedSpan(summary))
        return root


def parts_below(span: ListedSpan) -> list[str]:
    """Return the steps below a span, and the kinds of other parts but statements."""
    return [
        one.part.name if isinstance(one.part, StepPart) else type(one.part).__name__
        for one in span.below
        if not isinstance(one.part, StatementPart)
    ]


@dataclass
class WatchedCounter:
    """Counts like `chars`; `on_loop` holds the lengths counted on the thread it was made on, `beside` the others."""

    name: str = "watched"
    on_loop: list[int] = field(default_factory=list)
    beside: list[int] = field(default_factory=list)
    _home: int = field(default_factory=threading.get_ident)

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        (self.on_loop if threading.get_ident() == self._home else self.beside).append(len(text))
        return CharsCounter().count(text)


async def delete_old_rows(database: Database) -> None:
    """Delete all that is old."""
    await Retention(database.retention, ManualClock(), SilentMetrics(), RetentionConfig()).run()
