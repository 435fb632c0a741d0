"""Metrics that remember what they were told."""


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

    def of(self, name: str) -> list[dict[str, object]]:
        return [fields for reported, fields in self.reports if reported == name]
