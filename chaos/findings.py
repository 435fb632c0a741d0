"""What the checker finds: each finding is one broken promise, in words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """The promises that can be broken."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    GAP = "missing positions"
    RESULT = "tool results"
    ANSWER = "answers"
    ORDER = "order"
    SUMMARY = "summaries"
    SKIPPED = "summarised without being read"
    EVENTS = "events"
    FAILED = "failed runs"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise."""

    fault: Fault
    detail: str


def count_faults(findings: Iterable[Finding]) -> Mapping[Fault, int]:
    """Return how often each promise was broken, 0 for those that were kept."""
    counted = Counter(finding.fault for finding in findings)
    return {fault: counted[fault] for fault in Fault}
