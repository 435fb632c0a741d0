"""The lease of a row of claimed work: a side job, a Slack delivery, and with its session a run (domain/run.py)."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class RowLease:
    """The right to write for a row: valid while the row is held and carries this fence."""

    id: UUID
    fence: int
