"""Tables that are partitioned by the time in their ids, and the statements that make their partitions.

Ids are UUIDv7: their first 48 bits are the time in milliseconds. Migrations and db/partitions.py run the statements.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from uuid import UUID

_TIME_SHIFT = 80
"""Bits of an id after its time."""

_LAST_TIME = 2**48 - 1


class PartitionPeriod(Enum):
    """The time that one partition covers, in UTC; the value is the format of its name."""

    DAY = "%Y%m%d"
    MONTH = "%Y%m"

    def start(self, time: datetime) -> datetime:
        """Return the start of the period that contains `time`."""
        midnight = time.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight if self is PartitionPeriod.DAY else midnight.replace(day=1)

    def next(self, start: datetime) -> datetime:
        """Return the start of the period after the one that starts at `start`."""
        if self is PartitionPeriod.DAY:
            return start + timedelta(days=1)
        return (start + timedelta(days=31)).replace(day=1)


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A table with one partition for each period of the ids in the column `key`, and a default partition.

    The default partition takes rows that no other partition takes, so that no insert fails. Each partition is a table
    with the parameters `storage`, unlogged if `is_unlogged`: a partitioned table itself has neither.
    """

    table: str
    key: str
    period: PartitionPeriod
    is_unlogged: bool = False
    storage: Mapping[str, object] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, object]:
        """The options of the SQLAlchemy table."""
        return {"postgresql_partition_by": f"RANGE ({self.key})"}

    @property
    def default(self) -> str:
        """The name of the default partition."""
        return f"{self.table}_default"

    @property
    def attach_default(self) -> str:
        """The statement that attaches the default partition."""
        return f"alter table {self.table} attach partition {self.default} default"

    def name(self, start: datetime) -> str:
        """Return the name of the partition of the period that starts at `start`."""
        return f"{self.table}_{start:{self.period.value}}"

    def starts(self, now: datetime) -> tuple[datetime, datetime]:
        """Return the starts of the periods for which there should be partitions: the current and the next one."""
        current = self.period.start(now)
        return current, self.period.next(current)

    def create_default(self) -> tuple[str, str]:
        """Return the statements that make the default partition."""
        return self.create_table(self.default), self.attach_default

    def create(self, start: datetime) -> tuple[str, str]:
        """Return the statements that make the partition of the period that starts at `start`.

        Attaching takes a weaker lock on the partitioned table than `create table … partition of`.
        """
        name, end = self.name(start), self.period.next(start)
        return self.create_table(name), self.attach(name, f"'{first_id(start)}'", end)

    def create_first(self, now: datetime) -> tuple[str, ...]:
        """Return the statements that make the partitions of a new table."""
        by_period = (statement for start in self.starts(now) for statement in self.create(start))
        return (*self.create_default(), *by_period)

    def attach(self, name: str, first: str, end: datetime) -> str:
        """Return the statement that makes the table `name` the partition of ids from `first` until the time `end`."""
        return f"alter table {self.table} attach partition {name} for values from ({first}) to ('{first_id(end)}')"

    def create_table(self, name: str, included: str = "") -> str:
        """Return the statement that makes a table like the partitioned one, which is not yet attached.

        `included` is what it takes over besides defaults and constraints.
        """
        unlogged = "unlogged " if self.is_unlogged else ""
        storage = ", ".join(f"{parameter} = {value}" for parameter, value in self.storage.items())
        return (
            f"create {unlogged}table {name} (like {self.table} including defaults including constraints{included})"
            f"{f' with ({storage})' if storage else ''}"
        )


def first_id(time: datetime, shift: timedelta = timedelta(0)) -> UUID:
    """Return an id that is not greater than any made at `time` plus `shift` or later, and greater than all before."""
    milliseconds = (time - datetime.fromtimestamp(0, UTC) + shift) // timedelta(milliseconds=1)
    return UUID(int=min(max(0, milliseconds), _LAST_TIME) << _TIME_SHIFT)


def earlier_id(row_id: UUID, by: timedelta) -> UUID:
    """Return an id made `by` before the id."""
    return UUID(int=row_id.int - ((by // timedelta(milliseconds=1)) << _TIME_SHIFT))
