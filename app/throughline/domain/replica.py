"""Answers that a replica of the database gave: how old their data may be, and the replica's state for operators."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ReplicaAge:
    """The age of a replica's data: all that was committed before `until` is in it. None: the replica does not tell."""

    until: datetime | None


def older_of(first: ReplicaAge | None, second: ReplicaAge | None) -> ReplicaAge | None:
    """Return the older of two ages. None is data of the primary, which lacks nothing; an unknown age is the oldest."""
    if first is None or second is None:
        return first or second
    if first.until is None or second.until is None:
        return ReplicaAge(None)
    return first if first.until <= second.until else second


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """The replica of one process, at its last use there: `state` is `unused`, `answers`, or why the primary answers.

    `until` is that of its last answer, None if it gave none or does not tell its age. `place` is host and port.
    """

    place: str
    state: str
    until: datetime | None = None

    @property
    def is_refused(self) -> bool:
        """Whether the primary answers in its place."""
        return self.state not in {UNUSED, ANSWERS}


UNUSED, ANSWERS = "unused", "answers"
