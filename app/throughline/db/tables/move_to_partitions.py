"""The change of a filled table into a partitioned one, for migrations: no row is copied, and the service goes on.

The old table becomes the partition of all ids until a time in the future. Before that, a check constraint that is
validated without a lock on writers proves that it holds no other ids, so that attaching it reads no rows. Rows with
later ids, which only a wrong clock or an import can have made, are moved into the default partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from throughline.db.tables.partitions import Partitioned, first_id
from throughline.domain.errors import DatabaseUnusable

LOCK_TIMEOUT = "3s"
LEAST_TIME_LEFT = timedelta(days=1)
"""Shortest time from a migration to the end of the ids that the old table takes.

Between the check and the change, ids after that end would be refused. A migration that was interrupted has this time to
be run again.
"""


@dataclass(frozen=True, slots=True)
class Move:
    """A table to partition: the columns of its primary key, its indexes, and those that a partitioned one lacks.

    Indexes are written as what follows `create index name on table`.
    """

    partitioned: Partitioned
    primary_key: str
    indexes: Mapping[str, str] = field(default_factory=dict)
    dropped_indexes: Mapping[str, str] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """The table's name."""
        return self.partitioned.table

    @property
    def past(self) -> str:
        """The name that the old table gets."""
        return f"{self.table}_past"

    @property
    def bound(self) -> str:
        """The name of the check constraint by which the old table is attached without a scan."""
        return f"{self.table}_bound"


def partition(context: MigrationContext, move: Move) -> None:
    """Make the table a partition of a new one with its name; an empty table is replaced.

    All but the check constraint is one transaction: run again after an interruption, it starts over. Raises DBAPIError
    if a lock is not free within LOCK_TIMEOUT, DatabaseUnusable if rows with later ids stay in the table.
    """
    connection = context.connection
    assert connection is not None, "migrations are not run offline"
    end = _end_of_past(move.partitioned, _now(connection))
    is_filled = _has_rows(connection, move.table)
    if is_filled:
        with context.autocommit_block():
            _bound(connection, move, end)
    _run(connection, f"set local lock_timeout = '{LOCK_TIMEOUT}'")
    _create_default(connection, move, end)
    if is_filled:
        _move_later(connection, move, end)
        _validate(connection, move, end)
    _rename(connection, move)
    _create(connection, move)
    has_past = _has_rows(connection, move.past)
    if has_past:
        _attach(connection, move, end)
    else:
        _run(connection, f"drop table {move.past}")
    _first_partitions(connection, move, end, has_past=has_past)


def unpartition(connection: Connection, move: Move) -> None:
    """Copy the rows of all partitions into one table."""
    plain = f"{move.table}_plain"
    for statement in (
        f"set local lock_timeout = '{LOCK_TIMEOUT}'",
        f"lock table {move.table} in access exclusive mode",
        move.partitioned.create_table(plain, " including comments"),
        f"insert into {plain} select * from {move.table}",  # noqa: S608  # our own names
        f"drop table {move.table}",
        f"alter table {plain} rename to {move.table}",
        f"alter table {move.table} add constraint {move.table}_pkey primary key ({move.primary_key})",
        *(f"create index {name} on {move.table} {on}" for name, on in {**move.indexes, **move.dropped_indexes}.items()),
    ):
        _run(connection, statement)


def _end_of_past(partitioned: Partitioned, now: datetime) -> datetime:
    """Return the first start of a period that is at least LEAST_TIME_LEFT away."""
    end = partitioned.period.start(now)
    while end < now + LEAST_TIME_LEFT:
        end = partitioned.period.next(end)
    return end


def _bound(connection: Connection, move: Move, end: datetime) -> None:
    """Add the check constraint for new rows. Writers wait only while it is added."""
    check = f"check ({move.partitioned.key} < '{first_id(end)}')"
    for statement in (
        f"set lock_timeout = '{LOCK_TIMEOUT}'",
        f"alter table {move.table} drop constraint if exists {move.bound}",
        f"alter table {move.table} add constraint {move.bound} {check} not valid",
        "reset lock_timeout",
    ):
        _run(connection, statement)


def _create_default(connection: Connection, move: Move, end: datetime) -> None:
    """Create the table that becomes the default partition; a check constraint spares a scan when it is attached."""
    default, check = move.partitioned.default, f"check ({move.partitioned.key} >= '{first_id(end)}')"
    for statement in (
        move.partitioned.create_table(default),
        f"alter table {default} drop constraint if exists {move.bound}",
        f"alter table {default} add constraint {move.bound} {check}",
    ):
        _run(connection, statement)


def _move_later(connection: Connection, move: Move, end: datetime) -> None:
    """Move the rows with ids of `end` and later; readers find them in the old table until the transaction ends."""
    default = move.partitioned.default
    deleted = f"delete from {move.table} where {_is_later(move, end)} returning *"  # noqa: S608  # our own names
    for statement in (
        f"with moved as ({deleted}) insert into {default} select * from moved",  # noqa: S608  # our own names
        f"alter table {default} add primary key ({move.primary_key})",
        *(f"create index on {default} {on}" for on in move.indexes.values()),
    ):
        _run(connection, statement)


def _validate(connection: Connection, move: Move, end: datetime) -> None:
    """Read all rows of the old table without locking out writers. Raises DatabaseUnusable if it has later ids still."""
    try:
        with connection.begin_nested():
            _run(connection, f"alter table {move.table} validate constraint {move.bound}")
    except IntegrityError as error:
        later = f"from {move.table} where {_is_later(move, end)}"
        rows = connection.exec_driver_sql(f"select count(*) {later}").scalar_one()
        raise DatabaseUnusable(
            f"{move.table} cannot be partitioned: {rows} of its rows have ids of {end:%Y-%m-%d} or later, by a wrong "
            "clock or an import, and the database did not let them be moved into the default partition, perhaps by a "
            f"trigger. Remove what holds them or delete them (`delete {later}`) and upgrade again. No row was changed."
        ) from error


def _is_later(move: Move, end: datetime) -> str:
    return f"{move.partitioned.key} >= '{first_id(end)}'"


def _rename(connection: Connection, move: Move) -> None:
    """Rename the old table and its indexes, whose names the new one needs."""
    _run(connection, f"alter table {move.table} rename to {move.past}")
    _run(connection, f"alter table {move.past} rename constraint {move.table}_pkey to {move.past}_pkey")
    for name in move.indexes:
        _run(connection, f"alter index {name} rename to {move.past}_{name.removeprefix(f'{move.table}_')}")
    for name in move.dropped_indexes:
        _run(connection, f"drop index {name}")


def _create(connection: Connection, move: Move) -> None:
    """Create the partitioned table, without partitions."""
    columns = f"like {move.past} including defaults including constraints including comments"
    primary_key = f"constraint {move.table}_pkey primary key ({move.primary_key})"
    for statement in (
        f"create table {move.table} ({columns}, {primary_key}) partition by range ({move.partitioned.key})",
        f"alter table {move.table} drop constraint if exists {move.bound}",
        *(f"create index {name} on {move.table} {on}" for name, on in move.indexes.items()),
    ):
        _run(connection, statement)


def _attach(connection: Connection, move: Move, end: datetime) -> None:
    _run(connection, move.partitioned.attach(move.past, "minvalue", end))
    _run(connection, f"alter table {move.past} drop constraint if exists {move.bound}")


def _first_partitions(connection: Connection, move: Move, end: datetime, *, has_past: bool) -> None:
    """Attach the default partition, and create those of the current and the next period that no other takes.

    If rows were moved into the default partition, the service creates them.
    """
    partitioned = move.partitioned
    has_later = _has_rows(connection, partitioned.default)
    starts = [start for start in partitioned.starts(_now(connection)) if not has_past or start >= end]
    by_period = [statement for start in starts if not has_later for statement in partitioned.create(start)]
    for statement in (
        partitioned.attach_default,
        f"alter table {partitioned.default} drop constraint {move.bound}",
        *by_period,
    ):
        _run(connection, statement)


def _now(connection: Connection) -> datetime:
    now: datetime = connection.execute(text("select now()")).scalar_one()
    return now


def _has_rows(connection: Connection, table: str) -> bool:
    return bool(connection.exec_driver_sql(f"select exists (select from {table})").scalar_one())  # noqa: S608  # ours


def _run(connection: Connection, statement: str) -> None:
    connection.exec_driver_sql(statement)
