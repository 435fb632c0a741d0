"""How much of what answers a question is among the first results, for every way of searching alike."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.figures import aligned
from benchmarks.retrieval_data import Question

CUTS = (5, 10, 25, 50)


@dataclass(frozen=True, slots=True)
class Recall:
    """Means over all questions, for each of CUTS.

    `spans`: of a question's spans those with a line among the results; `lines`: of the lines in them, likewise.
    """

    spans: tuple[float, ...]
    lines: tuple[float, ...]

    @property
    def all(self) -> tuple[float, ...]:
        """Those by spans and those by lines."""
        return (*self.spans, *self.lines)

    def is_above(self, other: "Recall") -> bool:
        """Whether it is better on the whole and at no cut worse, by spans or by lines."""
        is_never_worse = all(mine >= theirs for mine, theirs in zip(self.all, other.all, strict=True))
        return is_never_worse and sum(self.all) > sum(other.all)


def recall_of(answers: Iterable[tuple[Question, Sequence[int]]]) -> Recall:
    """Return the recall of questions, each with the lines that were found for it, best first."""
    each = [([_spans(*answer, cut) for cut in CUTS], [_lines(*answer, cut) for cut in CUTS]) for answer in answers]
    spans, lines = zip(*each, strict=True)
    return Recall(
        tuple(map(statistics.fmean, zip(*spans, strict=True))), tuple(map(statistics.fmean, zip(*lines, strict=True)))
    )


def render(rows: Iterable[tuple[str, Recall]]) -> str:
    """Return the recalls as a Markdown table."""
    heads = [f"{kind} @{cut}" for kind in ("spans", "lines") for cut in CUTS]
    return aligned([["", *heads], *([name, *(f"{value:.3f}" for value in recall.all)] for name, recall in rows)])


def _spans(question: Question, found: Sequence[int], cut: int) -> float:
    return statistics.fmean(any(first <= line <= last for line in found[:cut]) for first, last in question.spans)


def _lines(question: Question, found: Sequence[int], cut: int) -> float:
    relevant = {line for first, last in question.spans for line in range(first, last + 1)}
    return len(relevant.intersection(found[:cut])) / len(relevant)
