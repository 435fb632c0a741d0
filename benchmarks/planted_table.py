"""The figures of the planted-fact measure, and the table they make."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from app.context.policy import SummaryKind, SummaryShape
from app.context.summaries.tiers import summary_room
from benchmarks.planted_conversation import FactKind

HEADINGS = (
    "compactions", "fact", "planted",
    "narrative: rolling", "tiered", "ledger", "prompt: rolling", "tiered",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """How many of the facts of a kind that lie before the cursor are found, and where."""

    seed: int
    shape: SummaryShape
    compactions: int
    kind: FactKind
    planted: int
    narrative: int
    ledger: int
    prompt: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What one session's summaries took from the model, and how many bytes of each stood at the next one's start."""

    shape: SummaryShape
    calls: int
    tokens: int
    stable_share: float
    largest_tokens: int


@dataclass(frozen=True, slots=True)
class Rules:
    """Standing instructions of one conversation.

    `planted` and `recognised` at the end of it, `others` are taken from what was not planted; `kept` of the
    recognised are in the last summary. `looked_for` and `kept_while_fitting` add up all summaries in which the
    instructions of the ledger fit their part; `fitting` is how many those are.
    """

    planted: int
    recognised: int
    others: int
    kept: int
    looked_for: int
    kept_while_fitting: int
    fitting: int


def render_table(found: Sequence[Found]) -> str:
    """Return a Markdown table: a row for each checkpoint and kind, shares over all seeds, rolling beside tiered."""
    lines: list[tuple[str, ...]] = [HEADINGS]
    for compactions in sorted({row.compactions for row in found}):
        at = [row for row in found if row.compactions == compactions]
        lines.extend(_line(compactions, kind.value, [row for row in at if row.kind is kind]) for kind in FactKind)
        lines.append(_line(compactions, "all", at))
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    rendered = [" | ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in (rendered[0], rule, *rendered[1:]))


def cost_lines(costs: Sequence[Cost]) -> list[str]:
    """Return what each shape took from the summary model, and how much of a summary the next one begins with."""
    lines = []
    for shape in SummaryShape:
        of = [cost for cost in costs if cost.shape is shape]
        lines.append(
            f"{shape.value}: {mean(cost.calls for cost in of):.0f} calls, "
            f"{mean(cost.tokens for cost in of):,.0f} summariser tokens, {mean(cost.stable_share for cost in of):.0%} "
            f"of a summary stand at the start of the next, largest {max(cost.largest_tokens for cost in of)} tokens"
        )
    return lines


def rule_lines(rules: Sequence[Rules], limit_tokens: int) -> list[str]:
    """Return how many planted standing instructions were recognised, and how many of those were kept."""
    planted, recognised = sum(rule.planted for rule in rules), sum(rule.recognised for rule in rules)
    looked_for, kept = sum(rule.looked_for for rule in rules), sum(rule.kept_while_fitting for rule in rules)
    part = summary_room(limit_tokens, SummaryKind.HYBRID).instruction_tokens
    others, fitting = mean(rule.others for rule in rules), mean(rule.fitting for rule in rules)
    last = sum(rule.kept for rule in rules)
    first = f"standing instructions planted: {recognised} of {planted} recognised; {others:.0f} more a conversation"
    return [
        f"{first} are taken from other talk",
        f"  while all fit their part of {part} tokens ({fitting:.0f} compactions): {_percent(kept, looked_for)} kept",
        f"  after the last compaction: {_percent(last, recognised)} kept, the newest first",
    ]


def verdict(found: Iterable[Found]) -> str:
    """Return which shape the measure speaks for: more free-form facts in the narrative at the end."""
    rows = [row for row in found if row.kind is FactKind.FREE_FORM]
    last = max(row.compactions for row in rows)
    shares = {
        shape: _share([row for row in rows if row.shape is shape and row.compactions == last], "narrative")
        for shape in SummaryShape
    }
    best = max(shares, key=lambda shape: shares[shape])
    told = ", ".join(f"{shape.value} {share:.0%}" for shape, share in shares.items())
    return f"free-form facts left after {last} compactions: {told}: the default should be `{best.value}`"


def _line(compactions: int, fact: str, rows: Sequence[Found]) -> tuple[str, ...]:
    rolling = [row for row in rows if row.shape is SummaryShape.ROLLING]
    tiered = [row for row in rows if row.shape is SummaryShape.TIERED]
    planted = sum(row.planted for row in rolling)
    if not planted:
        return (str(compactions), fact, "0", *["-"] * (len(HEADINGS) - 3))
    shares = (
        _share(rolling, "narrative"), _share(tiered, "narrative"), _share(tiered, "ledger"),
        _share(rolling, "prompt"), _share(tiered, "prompt"),
    )  # fmt: skip
    return (str(compactions), fact, str(planted), *(f"{share:.0%}" for share in shares))


def _share(rows: Sequence[Found], place: str) -> float:
    hits = {"narrative": 0, "ledger": 0, "prompt": 0}
    for row in rows:
        hits["narrative"] += row.narrative
        hits["ledger"] += row.ledger
        hits["prompt"] += row.prompt
    return hits[place] / max(sum(row.planted for row in rows), 1)


def _percent(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / max(whole, 1):.0%})"
