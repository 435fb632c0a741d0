"""The figures of the planted-fact measure, and the table they make."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from benchmarks.figures import aligned
from benchmarks.planted_conversation import FactKind
from benchmarks.planted_memory import Variant


@dataclass(frozen=True, slots=True)
class Found:
    """How many of the facts of a kind that lie before the cursor are found, and where.

    Of withdrawn values, those are found whose correction is not there: they mislead.
    """

    seed: int
    variant: Variant
    compactions: int
    kind: FactKind
    planted: int
    narrative: int
    ledger: int
    prompt: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What one session's summaries took from the model, and how many bytes of each stood at the next one's start."""

    variant: Variant
    calls: int
    unused_calls: int
    tokens: int
    stable_share: float
    largest_tokens: int


Place = Callable[[Found], int]
COLUMNS: tuple[tuple[str, Variant, Place], ...] = (
    ("narrative: rolling", Variant.ROLLING, lambda row: row.narrative),
    ("tiered", Variant.TIERED, lambda row: row.narrative),
    ("llm", Variant.LLM, lambda row: row.narrative),
    ("ledger", Variant.TIERED, lambda row: row.ledger),
    ("prompt: rolling", Variant.ROLLING, lambda row: row.prompt),
    ("tiered", Variant.TIERED, lambda row: row.prompt),
    ("llm", Variant.LLM, lambda row: row.prompt),
)
TABLE_NOTES = (
    "planted: facts before the cursor, of all seeds. ledger: without a model, the same for rolling and tiered.",
    "misleading: corrections of which only the withdrawn value is there (fewer is better); not part of all.",
)


def render_table(found: Sequence[Found]) -> str:
    """Return a Markdown table: a row for each checkpoint and kind, shares over all seeds, the variants side by side."""
    lines: list[tuple[str, ...]] = [("compactions", "fact", "planted", *(title for title, _, _ in COLUMNS))]
    for compactions in sorted({row.compactions for row in found}):
        at = [row for row in found if row.compactions == compactions]
        lines.extend(_line(compactions, _title(kind), [row for row in at if row.kind is kind]) for kind in FactKind)
        lines.append(_line(compactions, "all", [row for row in at if row.kind is not FactKind.WITHDRAWN]))
    return "\n".join((aligned(lines), "", *TABLE_NOTES))


def cost_lines(costs: Sequence[Cost]) -> list[str]:
    """Return what each variant took from the summary model, and how much of a summary the next one begins with."""
    lines = []
    for variant in Variant:
        of = [cost for cost in costs if cost.variant is variant]
        lines.append(
            f"{variant.value}: {mean(cost.calls for cost in of):.0f} calls "
            f"({mean(cost.unused_calls for cost in of):.1f} not accepted), "
            f"{mean(cost.tokens for cost in of):,.0f} summariser tokens, {mean(cost.stable_share for cost in of):.0%} "
            f"of a summary stand at the start of the next, largest {max(cost.largest_tokens for cost in of)} tokens"
        )
    return lines


def _line(compactions: int, fact: str, rows: Sequence[Found]) -> tuple[str, ...]:
    planted = sum(row.planted for row in rows if row.variant is Variant.TIERED)
    if not planted:
        return (str(compactions), fact, "0", *["-"] * len(COLUMNS))
    shares = (share([row for row in rows if row.variant is variant], place) for _, variant, place in COLUMNS)
    return (str(compactions), fact, str(planted), *(f"{value:.0%}" for value in shares))


def share(rows: Sequence[Found], place: Place) -> float:
    """Return the share of what was planted that is found in this place."""
    return sum(map(place, rows)) / max(sum(row.planted for row in rows), 1)


def _title(kind: FactKind) -> str:
    return "misleading" if kind is FactKind.WITHDRAWN else kind.value
