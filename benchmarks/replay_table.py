"""One line of figures for each replayed cell, and the table they make."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]  # a request record of the double's


@dataclass(frozen=True, slots=True)
class Row:
    """What one cell (data set, window, counting) came to."""

    dataset: str
    window: str
    counting: str
    turns: int
    prompts: int
    compactions: int
    largest_fill: float
    over_window: int
    refused_turns: int
    failed_turns: int
    invalid: int
    summary_calls: int
    summary_tokens: int
    prompt_tokens: int
    full_history_tokens: int
    stable_prefix: float
    turns_per_second: float
    differences: int

    @property
    def was_run(self) -> bool:
        """Whether the cell shows anything: without a compaction the window was never under pressure."""
        return self.compactions > 0


HEADINGS = (
    ("dataset", lambda row: row.dataset),
    ("window", lambda row: row.window),
    ("counting", lambda row: row.counting),
    ("turns", lambda row: f"{row.turns:,}"),
    ("prompts", lambda row: f"{row.prompts:,}"),
    ("compactions", lambda row: str(row.compactions) if row.was_run else "0: not run"),
    ("largest fill", lambda row: f"{row.largest_fill:.1%}"),
    ("over window", lambda row: str(row.over_window)),
    ("refused turns", lambda row: str(row.refused_turns)),
    ("failed turns", lambda row: str(row.failed_turns)),
    ("invalid", lambda row: str(row.invalid)),
    ("summary calls", lambda row: str(row.summary_calls)),
    ("summary tokens", lambda row: f"{row.summary_tokens:,}"),
    ("prompt tokens", lambda row: f"{row.prompt_tokens:,}"),
    ("full history", lambda row: f"{row.full_history_tokens:,}"),
    ("share", lambda row: f"{(row.prompt_tokens + row.summary_tokens) / max(row.full_history_tokens, 1):.0%}"),
    ("stable prefix", lambda row: f"{row.stable_prefix:.1%}"),
    ("turns/s", lambda row: f"{row.turns_per_second:.1f}"),
    ("changed messages", lambda row: str(row.differences)),
)


def render_table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table with aligned columns."""
    lines = [[title for title, _ in HEADINGS], *([render(row) for _, render in HEADINGS] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    rendered = [" | ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in (rendered[0], rule, *rendered[1:]))


def failures_of(row: Row) -> list[str]:
    """Return what breaks the service's promises; a provider that counts unlike us may refuse one first turn."""
    allowed = 1 if row.counting == "bytes2" else 0
    checks = (
        (not row.was_run, "no compaction: the cell shows nothing"),
        (row.over_window > allowed, f"{row.over_window} prompts over the window"),
        (row.failed_turns > 0, f"{row.failed_turns} failed turns"),
        (row.invalid > 0, f"{row.invalid} invalid prompts"),
        (row.differences > 0, f"{row.differences} messages missing or changed"),
    )
    return [f"{row.dataset} {row.window} {row.counting}: {text}" for is_wrong, text in checks if is_wrong]
