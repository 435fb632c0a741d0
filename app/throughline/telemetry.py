"""Prometheus metrics of one process. No label contains users' text."""

from collections.abc import Callable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from throughline.metric_files import reading

SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
TOKENS = (256, 1_024, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072, 262_144, 1_048_576)
DEVIATIONS = (-0.5, -0.25, -0.15, -0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0)
NEWEST: Final = "livemostrecent"
"""Mode of a gauge that every process would set to the same value: of several processes the value set last counts."""

FRACTIONS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)


class SummarySeries:
    """Metrics of calls to summary models. The number of calls is the count of `throughline_summary_seconds`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create the metrics and register them in `registry`."""
        self.tokens = Counter(
            "throughline_summary_tokens",
            "Tokens of summary calls by direction: input, output",
            ("model", "direction"),
            registry=registry,
        )
        self.seconds = Histogram(
            "throughline_summary_seconds",
            "Seconds that a summary call took",
            ("model",),
            buckets=SECONDS,
            registry=registry,
        )
        self.unused = Counter(
            "throughline_summary_tokens_unused",
            "Tokens of summary calls whose text was rejected, late or out of date",
            ("model", "reason"),
            registry=registry,
        )
        self.failures = Counter(
            "throughline_summary_failures",
            "Summary calls without a usable text, or not made because the circuit breaker was open. The reason is an "
            "error code, summary_rejected, circuit_open, timeout or too_slow",
            ("model", "reason"),
            registry=registry,
        )
        self.breaker_open = Gauge(
            "throughline_summary_breaker_open",
            "1 while the circuit breaker of a summary model is open",
            ("model",),
            registry=registry,
            multiprocess_mode="livemax",
        )


class CompactionSeries:
    """Metrics of compactions: outcomes, durations and tokens."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create the metrics and register them in `registry`."""
        self.finished = Counter(
            "throughline_compactions", "Compactions by trigger and outcome", ("cause", "outcome"), registry=registry
        )
        self.seconds = Histogram(
            "throughline_compaction_seconds", "Seconds that a compaction took", buckets=SECONDS, registry=registry
        )
        self.tokens_freed = Counter(
            "throughline_compaction_tokens_freed", "Tokens that compactions removed from prompts", registry=registry
        )
        self.tokens_before, self.tokens_after = (
            Histogram(
                f"throughline_compaction_tokens_{when}",
                f"Prompt size in tokens {when} it was pruned, compacted or fitted",
                buckets=TOKENS,
                registry=registry,
            )
            for when in ("before", "after")
        )


class TurnSeries:
    """Metrics of turns: those that ended, and those that wait in all processes.

    Each process that takes side jobs shows the same numbers of waiting turns.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create the metrics and register them in `registry`."""
        self.ended = Counter("throughline_turns", "Turns by how they ended", ("agent", "status"), registry=registry)
        self.seconds = Histogram(
            "throughline_turn_seconds",
            "Seconds from the claim of a turn to its end",
            ("agent",),
            buckets=SECONDS,
            registry=registry,
        )
        self.waiting = Gauge(
            "throughline_turns_waiting",
            "Turns in all processes that wait: queued for a worker, or waiting for a client, an approval or an answer",
            ("status",),
            registry=registry,
            multiprocess_mode=NEWEST,
        )
        self.oldest = Gauge(
            "throughline_turns_oldest_seconds",
            "Seconds since the message of the oldest of these turns was taken",
            ("status",),
            registry=registry,
            multiprocess_mode=NEWEST,
        )


class JobSeries:
    """Metrics of side jobs.

    Waiting jobs are counted for all processes, so each process that takes jobs shows the same number.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create the metrics and register them in `registry`."""
        self.ended = Counter(
            "throughline_jobs", "Side jobs that were taken, by how they ended", ("kind", "outcome"), registry=registry
        )
        self.waiting = Gauge(
            "throughline_jobs_waiting",
            "Waiting side jobs, in all processes",
            ("kind",),
            registry=registry,
            multiprocess_mode=NEWEST,
        )
        self.oldest = Gauge(
            "throughline_jobs_oldest_seconds",
            "Seconds for which the oldest side job has waited that could have been taken",
            ("kind",),
            registry=registry,
            multiprocess_mode=NEWEST,
        )
        self.taking = Gauge(
            "throughline_jobs_taking",
            "1 while this process takes side jobs; their number, for several processes with one port",
            registry=registry,
            multiprocess_mode="livesum",
        )


class RetentionSeries:
    """Metrics of deletions by age, counted in the process that ran the schedule."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create the metrics and register them in `registry`."""
        self.deleted = Counter(
            "throughline_retention_deleted",
            "Rows that retention deleted, or idempotency keys that it forgot",
            ("kind",),
            registry=registry,
        )
        self.failed = Counter(
            "throughline_retention_failed",
            "Failed batches of deletions; each ends its kind for that time",
            ("kind",),
            registry=registry,
        )
        self.out_of_time = Counter(
            "throughline_retention_out_of_time",
            "Retention runs that ended before all old rows were deleted: after ten minutes, or 500 archived sessions. "
            "The rest is left for the next run",
            ("kind",),
            registry=registry,
        )


class PromptSeries:
    """Metrics of prompts: their size, what made them smaller, and how well they were counted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create the metrics and register them in `registry`."""
        self.prompt_tokens = Histogram(
            "throughline_prompt_tokens",
            "Size of prompts in tokens, by the service's count",
            ("model",),
            buckets=TOKENS,
            registry=registry,
        )
        self.usage = Histogram(
            "throughline_prompt_usage",
            "Size of prompts as a share of the window",
            ("model",),
            buckets=FRACTIONS,
            registry=registry,
        )
        self.stages = Counter(
            "throughline_stages",
            "How often each stage made a prompt smaller; the label is the name of the stage",
            ("stage",),
            registry=registry,
        )
        self.overflows = Counter(
            "throughline_overflow_errors",
            "Prompts that a provider refused as too long",
            ("model",),
            registry=registry,
        )
        self.estimate_error = Histogram(
            "throughline_estimate_error",
            "The provider's count of a prompt, divided by the service's count, minus 1",
            ("model",),
            buckets=DEVIATIONS,
            registry=registry,
        )


class PrometheusMetrics:
    """All metrics of a process as Prometheus series: turns, prompts, compactions, summaries, side jobs, retention.

    If the variable MULTIPROCESS_FOLDER names a folder, prometheus_client keeps the values in files there, and `render`
    adds up those of all processes that share the folder.
    """

    def __init__(self, dropped_lines: Callable[[], int] = lambda: 0, *, shared_folder: str | None = None) -> None:
        """Create all metrics in a new registry. `dropped_lines` returns how many log lines were dropped.

        `shared_folder` is the value of MULTIPROCESS_FOLDER, if it is set.
        """
        self.registry = CollectorRegistry()
        self._shared_folder = shared_folder
        self._turns = TurnSeries(self.registry)
        self._model_failures = Counter(
            "throughline_model_failures", "Failed model calls by error", ("model", "error"), registry=self.registry
        )
        labels = ("model", "purpose")
        self._costs = Counter(
            "throughline_model_cost_usd",
            "Known costs of model calls in US dollars, by purpose: answer, summary",
            labels,
            registry=self.registry,
        )
        self._prompts = PromptSeries(self.registry)
        self._compactions = CompactionSeries(self.registry)
        self._summaries = SummarySeries(self.registry)
        self._jobs = JobSeries(self.registry)
        self._retention = RetentionSeries(self.registry)
        self._replica_reads = Counter(
            "throughline_replica_reads",
            "Reads that a replica may answer, by whether it did (`answers`) or why the primary did",
            ("outcome",),
            registry=self.registry,
        )
        self._dropped_lines, self._dropped = dropped_lines, 0
        self._log_lines_dropped = Counter(
            "throughline_log_lines_dropped",
            "Log lines that could not be written: the disk is full, or nobody reads standard error",
            registry=self.registry,
        )

    def turn_finished(self, *, agent: str, status: str, seconds: float) -> None:
        self._turns.ended.labels(agent, status).inc()
        self._turns.seconds.labels(agent).observe(seconds)

    def turns_waiting(self, *, status: str, turns: int, oldest_seconds: float) -> None:
        """Record the number of turns with this status, and the age of the oldest, in all processes."""
        self._turns.waiting.labels(status).set(turns)
        self._turns.oldest.labels(status).set(oldest_seconds)

    def prompt_sent(self, *, model: str, tokens: int, window_tokens: int) -> None:
        self._prompts.prompt_tokens.labels(model).observe(tokens)
        self._prompts.usage.labels(model).observe(tokens / window_tokens)

    def compaction_finished(self, *, cause: str, outcome: str, seconds: float, tokens_freed: int) -> None:
        self._compactions.finished.labels(cause, outcome).inc()
        self._compactions.seconds.observe(seconds)
        self._compactions.tokens_freed.inc(tokens_freed)

    def compaction_measured(self, *, tokens_before: int, tokens_after: int) -> None:
        self._compactions.tokens_before.observe(tokens_before)
        self._compactions.tokens_after.observe(tokens_after)

    def model_paid(self, *, model: str, purpose: str, cost_usd: float) -> None:
        self._costs.labels(model, purpose).inc(cost_usd)

    def model_failed(self, *, model: str, error: str) -> None:
        self._model_failures.labels(model, error).inc()

    def stage_fired(self, *, stage: str) -> None:
        self._prompts.stages.labels(stage).inc()

    def summary_written(self, *, model: str, input_tokens: int, output_tokens: int, seconds: float) -> None:
        self._summaries.tokens.labels(model, "input").inc(input_tokens)
        self._summaries.tokens.labels(model, "output").inc(output_tokens)
        self._summaries.seconds.labels(model).observe(seconds)

    def summary_unused(self, *, model: str, tokens: int, reason: str) -> None:
        self._summaries.unused.labels(model, reason).inc(tokens)

    def summary_failed(self, *, model: str, reason: str) -> None:
        self._summaries.failures.labels(model, reason).inc()

    def summary_breaker_read(self, *, model: str, is_open: bool) -> None:
        self._summaries.breaker_open.labels(model).set(is_open)

    def estimate_compared(self, *, model: str, estimated: int, reported: int) -> None:
        """Record the relative difference between the provider's count of a prompt and the service's.

        Above 0, the service counted too few tokens.
        """
        if estimated > 0:
            self._prompts.estimate_error.labels(model).observe(reported / estimated - 1)

    def overflow_met(self, *, model: str) -> None:
        self._prompts.overflows.labels(model).inc()

    def job_ended(self, *, kind: str, outcome: str) -> None:
        """Count a side job that was taken, by its outcome."""
        self._jobs.ended.labels(kind, outcome).inc()

    def jobs_waiting(self, *, kind: str, jobs: int, oldest_seconds: float) -> None:
        """Record the number of waiting side jobs of a kind, and for how many seconds the oldest has been due."""
        self._jobs.waiting.labels(kind).set(jobs)
        self._jobs.oldest.labels(kind).set(oldest_seconds)

    def jobs_taken(self, *, is_taking: bool) -> None:
        """Record whether this process takes side jobs."""
        self._jobs.taking.set(is_taking)

    def retention_deleted(self, *, kind: str, count: int) -> None:
        """Count the items of a kind that retention has deleted."""
        self._retention.deleted.labels(kind).inc(count)

    def retention_failed(self, *, kind: str) -> None:
        """Count a failed batch of deletions. The remaining rows of that kind are left to the next run of retention."""
        self._retention.failed.labels(kind).inc()

    def retention_out_of_time(self, *, kind: str) -> None:
        """Count a run of retention that ran out of time before all old rows of a kind were deleted."""
        self._retention.out_of_time.labels(kind).inc()

    def replica_read(self, outcome: str) -> None:
        """Count a read that a replica may answer. The outcome is `answers`, or why the primary answered instead."""
        self._replica_reads.labels(outcome).inc()

    def count_dropped_lines(self) -> None:
        """Add the log lines that were dropped since the last call."""
        dropped = self._dropped_lines()
        self._log_lines_dropped.inc(dropped - self._dropped)
        self._dropped = dropped

    def render(self) -> tuple[bytes, str]:
        """Return the metrics in the text format, and its content type."""
        self.count_dropped_lines()
        if not self._shared_folder:
            return generate_latest(self.registry), CONTENT_TYPE_LATEST
        of_all = CollectorRegistry()
        MultiProcessCollector(of_all, self._shared_folder)  # type: ignore[no-untyped-call]  # ships none for it
        with reading(self._shared_folder):
            return generate_latest(of_all), CONTENT_TYPE_LATEST
