"""One line of figures for each replayed cell, the tables they make, what it cost, and what of it breaks a promise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from benchmarks.figures import aligned
from benchmarks.replay_check import Json
from throughline.context.policy import Strategy, SummaryShape

Settings: TypeAlias = dict[str, str | dict[str, str]]  # part of an agent file

SHIPPED = "shipped"
"""What the service does when an agent file says nothing."""

STRATEGIES: dict[str, Settings] = {
    SHIPPED: {},
    SummaryShape.TIERED.value: {"summary": {"shape": SummaryShape.TIERED.value}},
    SummaryShape.ROLLING.value: {"summary": {"shape": SummaryShape.ROLLING.value}},
    Strategy.TRUNCATION.value: {"strategy": Strategy.TRUNCATION.value},
    Strategy.IMPORTANCE.value: {"strategy": Strategy.IMPORTANCE.value},
}
WITHOUT_SUMMARIES = frozenset((Strategy.TRUNCATION.value, Strategy.IMPORTANCE.value))

PREFIX_AIM = 0.95
"""At least so much of a prompt should stand at the start of the next one while no stage comes between them."""

CACHED_PRICE = 0.1
"""What providers take for a token of a prompt's beginning that they know from the prompt before, beside a new one."""

COST_NOTES = (
    "Prices are in tokens: 1 for each new one of a prompt and each that a summariser read or wrote, "
    f"{CACHED_PRICE:g} for each that stood at the start of the prompt before, too. Answers cost the same anyhow and "
    "are left out. The full history holds no tools' schemas, and is counted as if it could be sent above the window."
)


@dataclass(frozen=True, slots=True)
class Row:
    """What one cell (provider, data set, window, counting, strategy) came to.

    `compactions` are adoptions of a further summary; `stages` counts the steps that changed a prompt, by name. Tokens
    are as the provider counts them. `cursor` is how many messages the summary stands for in the end, `skipped` how many
    of them no summariser was shown. `repeated_tokens` of the prompts stood at the start of the prompt before, too.
    `stable_prefix` is the share of a prompt that stands at the start of the next while no stage comes between them.
    """

    provider: str
    dataset: str
    window: str
    counting: str
    turns: int
    prompts: int
    compactions: int
    stages: tuple[tuple[str, int], ...]
    largest_fill: float
    over_window: int
    failed_turns: int
    invalid: int
    differences: int
    cursor: int
    skipped: int
    stable_prefix: float
    prompt_tokens: int
    repeated_tokens: int
    summary_calls: int
    summary_tokens: int
    summary_written_tokens: int
    full_history_price: int
    strategy: str = SHIPPED

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
        return self.compactions > 0 or (self.strategy in WITHOUT_SUMMARIES and bool(self.stages))

    @property
    def prompts_price(self) -> int:
        """What all prompts cost."""
        return price(self.prompt_tokens, self.repeated_tokens)

    @property
    def whole_price(self) -> int:
        """What the prompts and the summaries cost."""
        return self.prompts_price + self.summary_tokens + self.summary_written_tokens

    @property
    def share(self) -> float:
        """The whole price beside that of full histories."""
        return self.whole_price / max(self.full_history_price, 1)


Column = tuple[str, Callable[[Row], str]]
CELL: tuple[Column, ...] = (
    ("provider", lambda row: row.provider),
    ("dataset", lambda row: row.dataset),
    ("window", lambda row: row.window),
    ("counting", lambda row: row.counting),
    ("strategy", lambda row: row.strategy),
)
FIGURES: tuple[Column, ...] = (
    ("turns", lambda row: f"{row.turns:,}"),
    ("prompts", lambda row: f"{row.prompts:,}"),
    ("compactions", lambda row: str(row.compactions) if row.was_run else "0: not run"),
    ("stages", lambda row: ", ".join(f"{name} {count}" for name, count in row.stages) or "-"),
    ("largest fill", lambda row: f"{row.largest_fill:.1%}"),
    ("over window", lambda row: str(row.over_window)),
    ("failed turns", lambda row: str(row.failed_turns)),
    ("invalid", lambda row: str(row.invalid)),
    ("stable prefix", lambda row: f"{row.stable_prefix:.1%}"),
    ("cursor", lambda row: f"{row.cursor:,}"),
    ("skipped", lambda row: str(row.skipped)),
    ("changed messages", lambda row: str(row.differences)),
)
COSTS: tuple[Column, ...] = (
    ("summary calls", lambda row: str(row.summary_calls)),
    ("read", lambda row: f"{row.summary_tokens:,}"),
    ("written", lambda row: f"{row.summary_written_tokens:,}"),
    ("prompt tokens", lambda row: f"{row.prompt_tokens:,}"),
    ("repeated", lambda row: f"{row.repeated_tokens / max(row.prompt_tokens, 1):.0%}"),
    ("prompts' price", lambda row: f"{row.prompts_price:,}"),
    ("all's price", lambda row: f"{row.whole_price:,}"),
    ("full history's price", lambda row: f"{row.full_history_price:,}"),
    ("share", lambda row: f"{row.share:.0%}"),
)


def repeated_tokens(prompts: Sequence[Json]) -> int:
    """Return how many tokens of a session's prompts stood at the start of the prompt before, in their order."""
    pairs = ((before, prompt) for before, prompt in pairwise(prompts) if prompt["verdict"] != "over_window")
    shared: list[float] = [
        before["prompt_tokens"] * prompt["shared_bytes"] / max(prompt["previous_bytes"], 1) for before, prompt in pairs
    ]
    return round(sum(shared))


def growing_price(prompts: Sequence[int]) -> int:
    """Return the price of prompts, each the beginning of the next."""
    return price(sum(prompts), sum(prompts[:-1]))


def price(tokens: int, repeated: int) -> int:
    """Return the price of `tokens`, of which so many are repeated."""
    return round(tokens - (1 - CACHED_PRICE) * repeated)


def progress(row: Row) -> str:
    """Return the most important figures in one line: a long run may be stopped before the table."""
    return (
        f"{row.turns} turns, {row.prompts} prompts, {row.compactions} compactions, {row.over_window} over the window, "
        f"{row.invalid} invalid, {row.skipped} skipped, {row.failed_turns} failed, {row.differences} changed, "
        f"{row.share:.0%} of full history's price, {row.stable_prefix:.1%} stable"
    )


def render_table(rows: Sequence[Row]) -> str:
    """Return what became of each cell as a Markdown table."""
    return _table((*CELL, *FIGURES), rows)


def render_costs(rows: Sequence[Row]) -> str:
    """Return what each cell cost as a Markdown table, and what its words mean."""
    return f"{_table((*CELL, *COSTS), rows)}\n\n{COST_NOTES}"


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    return aligned([[title for title, _ in columns], *([render(row) for _, render in columns] for row in rows)])


def failures_of(row: Row) -> list[str]:
    """Return what breaks the service's promises; a provider that counts unlike us may refuse one first turn."""
    allowed = 1 if row.counting == "bytes2" else 0
    checks = (
        (not row.was_run, "no compaction: the cell shows nothing"),
        (row.over_window > allowed, f"{row.over_window} prompts over the window"),
        (row.failed_turns > 0, f"{row.failed_turns} failed turns"),
        (row.invalid > 0, f"{row.invalid} invalid prompts"),
        (row.differences > 0, f"{row.differences} messages missing or changed"),
        (row.skipped > 0, f"{row.skipped} messages behind the cursor that no summariser was shown"),
        (row.stable_prefix < PREFIX_AIM, f"only {row.stable_prefix:.1%} of prompts stay between stages"),
    )
    return [f"{row.name}: {text}" for is_wrong, text in checks if is_wrong]
