"""What a scenario reports, and the table of all of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from chaos.findings import Fault, Finding, count_faults

MOST_DETAILS = 20


@dataclass(frozen=True, slots=True)
class Report:
    """One scenario: what was done, by name, and which promises were broken."""

    scenario: str
    counts: Mapping[str, float]
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def render(reports: Sequence[Report]) -> str:
    """Return a table per scenario: what was done, and each promise with how often it was broken."""
    return "\n".join(line for report in reports for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"== {report.scenario}"
    yield "   " + "   ".join(f"{name} {value:g}" for name, value in report.counts.items())
    faults = count_faults(report.findings)
    yield "   " + "   ".join(f"{fault.value} {faults[fault]}" for fault in Fault)
    for finding in report.findings[:MOST_DETAILS]:
        yield f"   ! {finding.fault.value}: {finding.detail}"
    if len(report.findings) > MOST_DETAILS:
        yield f"   ! and {len(report.findings) - MOST_DETAILS} more"
    for note in report.notes[:MOST_DETAILS]:
        yield f"   . {note}"
