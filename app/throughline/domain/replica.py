"""Answers that a replica of the database gave: how old their data may be, and the replica's state for operators."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ReplicaAge:
    """The age of a replica's data: all that was committed before `as_of` is in it. None: the replica does not tell."""

    as_of: datetime | None


def older_of(first: ReplicaAge | None, second: ReplicaAge | None) -> ReplicaAge | None:
    """Return the older of two ages. None is data of the primary, which lacks nothing; an unknown age is the oldest."""
    if first is None or second is None:
        return first or second
    if first.as_of is None or second.as_of is None:
        return ReplicaAge(None)
    return first if first.as_of <= second.as_of else second


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """The replica of one process, at its last use there: `state` is `unused`, `answers`, or why the primary answers.

    `as_of` is that of its last answer, None if it gave none or does not tell its age. `place` is host and port.
    """

    place: str
    state: str
    as_of: datetime | None = None

    @property
    def is_refused(self) -> bool:
        """Whether the primary answers in its place."""
        return self.state not in {UNUSED, ANSWERS}


UNUSED, ANSWERS = "unused", "answers"
