"""One line of figures for each replayed cell, the table they make, and what of it breaks a promise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.replay_strategies import SHIPPED, WITHOUT_SUMMARIES

PREFIX_AIM = 0.95
"""At least so much of a prompt should stand at the start of the next one while no stage comes between them."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one cell (provider, data set, window, counting) came to.

    `compactions` are adoptions of a further summary, `adopted_ahead` those of one that was written before the turn;
    `unachieved` compactions ended without one. `rungs` counts the stages that did something by name. Tokens are as the
    provider counts them. `cursor` is how many messages the summary stands for in the end, `unread` how many of them no
    summariser was shown. `rejected_tokens` were paid for summaries that were not accepted; which ones those were a
    double cannot know. `repeated_tokens` of the prompts stood at the start of the prompt before, too;
    `full_history_price` is what full histories cost where that is cheaper (`replay_cost`).
    """

    provider: str
    dataset: str
    window: str
    counting: str
    turns: int
    prompts: int
    compactions: int
    adopted_ahead: int
    rungs: tuple[tuple[str, int], ...]
    unachieved: int
    largest_prompt: int
    largest_fill: float
    over_window: int
    refused_turns: int
    failed_turns: int
    invalid: int
    summary_calls: int
    summary_tokens: int
    prompt_tokens: int
    cache_read_tokens: int
    cursor: int
    stable_prefix: float
    stable_prefix_at_rest: float
    turns_per_second: float
    full_history_tokens: int = 0
    differences: int = 0
    unread: int = 0
    rejected_tokens: int = 0
    strategy: str = SHIPPED
    repeated_tokens: int = 0
    summary_written_tokens: int = 0
    full_history_price: int = 0

    @property
    def name(self) -> str:
        """The cell's name."""
        name = f"{self.provider} {self.dataset} {self.window} {self.counting}"
        return name if self.strategy == SHIPPED else f"{name} {self.strategy}"

    @property
    def was_run(self) -> bool:
        """Whether the cell shows anything: without a compaction the window was never under pressure.

        A strategy without summaries leaves messages out instead.
        """
        return self.compactions > 0 or (self.strategy in WITHOUT_SUMMARIES and bool(self.rungs))

    @property
    def share(self) -> float:
        """All tokens that were sent, those of summarisers too, beside what full histories would have taken."""
        return (self.prompt_tokens + self.summary_tokens) / max(self.full_history_tokens, 1)


Column = tuple[str, Callable[[Row], str]]
HEADINGS: tuple[Column, ...] = (
    ("provider", lambda row: row.provider),
    ("dataset", lambda row: row.dataset),
    ("window", lambda row: row.window),
    ("counting", lambda row: row.counting),
    ("strategy", lambda row: row.strategy),
    ("turns", lambda row: f"{row.turns:,}"),
    ("prompts", lambda row: f"{row.prompts:,}"),
    ("compactions", lambda row: str(row.compactions) if row.was_run else "0: not run"),
    ("ahead", lambda row: str(row.adopted_ahead)),
    ("unachieved", lambda row: str(row.unachieved)),
    ("rungs", lambda row: ", ".join(f"{name} {count}" for name, count in row.rungs) or "-"),
    ("mean prompt", lambda row: f"{row.prompt_tokens / max(row.prompts, 1):,.0f}"),
    ("largest", lambda row: f"{row.largest_prompt:,}"),
    ("largest fill", lambda row: f"{row.largest_fill:.1%}"),
    ("over window", lambda row: str(row.over_window)),
    ("refused turns", lambda row: str(row.refused_turns)),
    ("failed turns", lambda row: str(row.failed_turns)),
    ("invalid", lambda row: str(row.invalid)),
    ("summary calls", lambda row: str(row.summary_calls)),
    ("summary tokens", lambda row: f"{row.summary_tokens:,}"),
    ("prompt tokens", lambda row: f"{row.prompt_tokens:,}"),
    ("full history", lambda row: f"{row.full_history_tokens:,}"),
    ("share", lambda row: f"{row.share:.0%}"),
    ("stable prefix", lambda row: f"{row.stable_prefix:.1%}"),
    ("at rest", lambda row: f"{row.stable_prefix_at_rest:.1%}"),
    ("from cache", lambda row: f"{row.cache_read_tokens / max(row.prompt_tokens, 1):.0%}"),
    ("turns/s", lambda row: f"{row.turns_per_second:.1f}"),
    ("cursor", lambda row: f"{row.cursor:,}"),
    ("unread", lambda row: str(row.unread)),
    ("rejected tokens", lambda row: f"{row.rejected_tokens:,}"),
    ("changed messages", lambda row: str(row.differences)),
)


def progress(row: Row) -> str:
    """Return the most important figures in one line: a long run may be stopped before the table."""
    return (
        f"{row.turns} turns, {row.prompts} prompts, {row.compactions} compactions, {row.over_window} over the window, "
        f"{row.invalid} invalid, {row.unread} unread, {row.failed_turns} failed, {row.differences} changed, "
        f"{row.share:.0%} of full history, {row.stable_prefix:.1%} stable, {row.stable_prefix_at_rest:.1%} at rest"
    )


def render_table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table with aligned columns."""
    lines = [[title for title, _ in HEADINGS], *([render(row) for _, render in HEADINGS] for row in rows)]
    return aligned(lines)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells, the headings first, as a Markdown table."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
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
        (row.unread > 0, f"{row.unread} messages behind the cursor that no summariser was shown"),
        (
            row.stable_prefix_at_rest < PREFIX_AIM,
            f"only {row.stable_prefix_at_rest:.1%} of prompts stay between stages",
        ),
    )
    return [f"{row.name}: {text}" for is_wrong, text in checks if is_wrong]
