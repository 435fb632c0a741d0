"""What is reported of turns, prompts and summaries."""

from typing import Protocol


class Metrics(Protocol):
    """What a turn reports of itself; no label ever holds user text."""

    def turn_finished(self, *, agent: str, status: str, seconds: float) -> None:
        """Count a finished turn."""

    def prompt_sent(self, *, model: str, tokens: int, window_tokens: int) -> None:
        """Record the size of a prompt by our own count."""

    def compaction_finished(self, *, cause: str, outcome: str, seconds: float, tokens_freed: int) -> None:
        """Count a compaction: outcome is `adopted`, `skipped`, `failed` or `cancelled`."""

    def model_failed(self, *, model: str, error: str) -> None:
        """Count a failed model call by error code."""

    def compaction_measured(self, *, tokens_before: int, tokens_after: int) -> None:
        """Record the size of a prompt before and after room was made, in the model's tokens."""

    def stage_fired(self, *, stage: str) -> None:
        """Count a stage of the ladder (`pruned`, `oldest_trimmed`, …) that changed the view of a session."""

    def summary_written(self, *, model: str, input_tokens: int, output_tokens: int, seconds: float) -> None:
        """Record a summariser call that ended, whatever became of its text."""

    def summary_unused(self, *, model: str, tokens: int, reason: str) -> None:
        """Count summariser tokens (read and written) that were paid and never adopted."""

    def summary_failed(self, *, model: str, reason: str) -> None:
        """Count a summariser call that gave no usable text, or was not made as the model rests, by error code."""

    def summary_breaker_read(self, *, model: str, is_open: bool) -> None:
        """Show whether a summary model is being left alone: open until a call has reached it again."""

    def estimate_compared(self, *, model: str, estimated: int, reported: int) -> None:
        """Record our estimate of a prompt beside the provider's count of it."""

    def overflow_met(self, *, model: str) -> None:
        """Count a prompt that the provider called too long."""
