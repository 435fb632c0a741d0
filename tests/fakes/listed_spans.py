"""Spans that list the parts below them, for tests of what is reported to whatever records traces."""

from dataclasses import dataclass, field

from throughline.domain.run import Run
from throughline.ports.tracing import PartResult, Span, StatementPart, StepPart, SummaryTrace, TracedPart


@dataclass
class ListedSpan:
    """A span that lists the parts below it, the results, and how it ended."""

    part: TracedPart | Run | SummaryTrace
    trace_id: str = "1"
    below: list["ListedSpan"] = field(default_factory=list)
    results: list[PartResult] = field(default_factory=list)
    ends: list[BaseException | None] = field(default_factory=list)

    def begin(self, part: TracedPart) -> Span:
        self.below.append(new := ListedSpan(part))
        return new

    def add_result(self, result: PartResult) -> None:
        self.results.append(result)

    def end(self, error: BaseException | None) -> None:
        self.ends.append(error)


@dataclass
class ListedTracing:
    roots: list[ListedSpan] = field(default_factory=list)

    def begin_turn(self, run: Run) -> Span:
        self.roots.append(root := ListedSpan(run))
        return root

    def begin_summary(self, summary: SummaryTrace) -> Span:
        self.roots.append(root := ListedSpan(summary))
        return root


def parts_below(span: ListedSpan) -> list[str]:
    """Return the steps below a span, and the kinds of other parts but statements."""
    return [
        one.part.name if isinstance(one.part, StepPart) else type(one.part).__name__
        for one in span.below
        if not isinstance(one.part, StatementPart)
    ]
