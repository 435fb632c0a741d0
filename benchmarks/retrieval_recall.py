"""How much of what answers a question is among the first results, for every way of searching alike."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.retrieval_data import Question

CUTS = (5, 10, 25, 50)

Search: TypeAlias = Callable[[Question], Sequence[int]]
"""Returns the lines found (from 0), best first, at most the largest of CUTS."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Means over all questions, for each of CUTS.

    `spans`: of a question's spans those with a line among the results; `lines`: of the lines in them, likewise.
    """

    spans: tuple[float, ...]
    lines: tuple[float, ...]

    @property
    def mean(self) -> float:
        """One number to tune by."""
        return statistics.fmean((*self.spans, *self.lines))

    def is_above(self, other: "Recall") -> bool:
        """Whether it is better on the whole and at no cut worse, by spans or by lines."""
        pairs = zip((*self.spans, *self.lines), (*other.spans, *other.lines), strict=True)
        return self.mean > other.mean and all(mine >= theirs for mine, theirs in pairs)


class RecallMeter:
    """Gathers the recall of question after question."""

    def __init__(self) -> None:
        """Begin with no question."""
        self._spans: list[list[float]] = [[] for _ in CUTS]
        self._lines: list[list[float]] = [[] for _ in CUTS]

    def add(self, question: Question, found: Sequence[int]) -> None:
        """Take the results of one question."""
        relevant = {line for first, last in question.spans for line in range(first, last + 1)}
        for place, cut in enumerate(CUTS):
            top = set(found[:cut])
            hit = [any(first <= line <= last for line in top) for first, last in question.spans]
            self._spans[place].append(statistics.fmean(hit))
            self._lines[place].append(len(top & relevant) / len(relevant))

    def result(self) -> Recall:
        """Return the means."""
        return Recall(
            tuple(statistics.fmean(values) for values in self._spans),
            tuple(statistics.fmean(values) for values in self._lines),
        )


def render(rows: Sequence[tuple[str, Recall]]) -> str:
    """Return the recalls as a Markdown table."""
    heads = [f"{kind} @{cut}" for kind in ("spans", "lines") for cut in CUTS]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for name, recall in rows:
        lines.append(f"| {name} | {' | '.join(f'{value:.3f}' for value in (*recall.spans, *recall.lines))} |")
    return "\n".join(lines)
