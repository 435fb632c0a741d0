"""The interface for metrics of turns, prompts and summaries."""

from typing import Protocol

from throughline.domain.usage_report import ModelCall


class Metrics(Protocol):
    """Metrics of turns, prompts and summaries. Labels never contain user text."""

    def turn_finished(self, *, agent: str, status: str, seconds: float) -> None:
        """Count a finished turn by agent and status, and record its duration."""

    def prompt_sent(self, *, model: str, tokens: int, window_tokens: int) -> None:
        """Record the size of a prompt, by the service's own count, in tokens and as a share of the window."""

    def compaction_finished(self, *, cause: str, outcome: str, seconds: float, tokens_freed: int) -> None:
        """Count a compaction by its cause and outcome, and record its duration and the tokens freed.

        Outcomes: `adopted`, `skipped`, `failed` or `cancelled`.
        """

    def model_failed(self, *, model: str, error: str) -> None:
        """Count a failed model call by its error code."""

    def model_paid(self, *, model: str, purpose: str, cost_usd: float) -> None:
        """Add the known cost of an answered model call."""

    def compaction_measured(self, *, tokens_before: int, tokens_after: int) -> None:
        """Record the size of a prompt before and after it was made smaller, with or without a summary, in tokens."""

    def stage_fired(self, *, stage: str) -> None:
        """Count a compaction stage (`pruned`, `oldest_trimmed`, …) that changed what a session's prompt shows."""

    def summary_written(self, *, model: str, input_tokens: int, output_tokens: int, seconds: float) -> None:
        """Record a finished call of a summary model, whether or not its text was used."""

    def summary_unused(self, *, model: str, tokens: int, reason: str) -> None:
        """Count tokens read and written by a summary model for text that was never adopted."""

    def summary_failed(self, *, model: str, reason: str) -> None:
        """Count by error code a summary call that gave no usable text or was prevented by an open circuit breaker."""

    def summary_breaker_read(self, *, model: str, is_open: bool) -> None:
        """Report whether a summary model's circuit breaker is open."""

    def estimate_compared(self, *, model: str, estimated: int, reported: int) -> None:
        """Record the service's estimate of a prompt's tokens together with the provider's count."""

    def overflow_met(self, *, model: str) -> None:
        """Count a prompt that the provider rejected as too long."""


def count_cost(metrics: Metrics, call: ModelCall) -> None:
    """Add the cost of the call to the metrics if it is known."""
    if call.usage.cost_usd is not None:
        metrics.model_paid(model=call.model, purpose=call.purpose.value, cost_usd=float(call.usage.cost_usd))
