"""What a replayed cell cost: its prompts and its summaries, beside the whole history sent each time, cached or not."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from benchmarks.replay_check import Json
from benchmarks.replay_table import Row, aligned

CACHED_PRICE = 0.1
"""What providers take for a token of a prompt's beginning that they know from the prompt before, beside a new one."""

COST_NOTES = (
    "Prices are in tokens: 1 for each new one of a prompt and each that a summariser read or wrote, "
    f"{CACHED_PRICE:g} for each that stood at the start of the prompt before, too. Answers cost the same anyhow and "
    "are left out. The full history holds no tools' schemas, and is counted as if it could be sent above the window."
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


def prompts_price(row: Row) -> int:
    """Return the price of a cell's prompts."""
    return price(row.prompt_tokens, row.repeated_tokens)


def whole_price(row: Row) -> int:
    """Return the price of a cell: its prompts and its summaries."""
    return prompts_price(row) + row.summary_tokens + row.summary_written_tokens


COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("provider", lambda row: row.provider),
    ("dataset", lambda row: row.dataset),
    ("window", lambda row: row.window),
    ("counting", lambda row: row.counting),
    ("strategy", lambda row: row.strategy),
    ("prompts", lambda row: f"{row.prompts:,}"),
    ("summary calls", lambda row: str(row.summary_calls)),
    ("read", lambda row: f"{row.summary_tokens:,}"),
    ("written", lambda row: f"{row.summary_written_tokens:,}"),
    ("prompt tokens", lambda row: f"{row.prompt_tokens:,}"),
    ("repeated", lambda row: f"{row.repeated_tokens / max(row.prompt_tokens, 1):.0%}"),
    ("all uncached", lambda row: f"{row.prompt_tokens + row.summary_tokens + row.summary_written_tokens:,}"),
    ("full history uncached", lambda row: f"{row.full_history_tokens:,}"),
    ("prompts' price", lambda row: f"{prompts_price(row):,}"),
    ("all's price", lambda row: f"{whole_price(row):,}"),
    ("full history's price", lambda row: f"{row.full_history_price:,}"),
    ("share", lambda row: f"{whole_price(row) / max(row.full_history_price, 1):.0%}"),
)


def render_costs(rows: Sequence[Row]) -> str:
    """Return a Markdown table with a line for each cell, and what its words mean."""
    lines = [[title for title, _ in COLUMNS], *([render(row) for _, render in COLUMNS] for row in rows)]
    return f"{aligned(lines)}\n\n{COST_NOTES}"
