"""The lease on a claimed row: a side job, a Slack delivery or a run.

A run's lease (domain/run.py) adds the session.
"""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class RowLease:
    """The right to write on behalf of a claimed row; valid while the row is claimed and has this fence number."""

    id: UUID
    fence: int
