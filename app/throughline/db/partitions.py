"""Partitions by time of run_events and model_calls: made ahead, and dropped when all their rows have expired.

`turn/worker/retention.py` calls it by a schedule. Locks are waited for briefly, so that no turn waits behind a waiting
change: a change that does not get its lock is made by a later call. No lock outlives its transaction.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from throughline.db.attach_partition import BRIEF, admit_rows, attach_beside, is_closed, move_rows, open_default, run
from throughline.db.connection.pool import Statement
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.statements.sql import sql
from throughline.db.tables.partitions import Partitioned, first_id
from throughline.db.tables.runs import MODEL_CALLS, RUN_EVENTS

MOST_MOVED_ROWS = 5_000
"""Most rows that are moved into or out of the default partition while readers and writers wait."""

MOST_KEPT_RUNS = 1_000
RUNS_AT_ONCE = 20_000

MOST_READ_BYTES = 16_000_000
"""Largest default partition that is read while its readers and writers wait."""

LEAST_TIME_LEFT = timedelta(hours=6)
"""Shortest time until a period for whose rows the default partition is closed: they must not begin meanwhile.

If the change fails and a dump then holds the table, the partition stays closed until the dump has ended.
"""

_SIZE = sql("select pg_relation_size(to_regclass(:table)) as bytes")

_LIST = sql("""
    select c.relname as name, pg_get_expr(c.relpartbound, c.oid) as bounds, now() as now
    from (values (1)) as one left join pg_inherits i on i.inhparent = to_regclass(:table)
        left join pg_class c on c.oid = i.inhrelid
""")
_BOUNDS = re.compile(r"FROM \((?:MINVALUE|'(?P<first>[0-9a-f-]+)')\) TO \('(?P<end>[0-9a-f-]+)'\)")

# An erased run has no row here: events that it left have no readers and need not be kept.
_UNEXPIRED_RUNS = sql("""
    with looked_at as materialized (
        select r.id, r.finished_at from runs r where r.id >= :after and r.id < :before order by r.id limit :rows
    )
    select array(select id from looked_at
            where finished_at is null or finished_at >= now() - make_interval(hours => :hours)) as kept,
        (select count(*) from looked_at) as looked_at, (select id from looked_at order by id desc limit 1) as last_id
""")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its table, and the first id of its range and the first after it. `first` None: no first one."""

    name: str
    first: UUID | None
    end: UUID

    def has(self, row_id: UUID) -> bool:
        """Whether the partition takes rows with this id."""
        return (self.first is None or self.first <= row_id) and row_id < self.end


@dataclass(frozen=True, slots=True)
class Dropped:
    """The result of dropping: how many partitions were dropped, and those left whose runs keep too many rows."""

    count: int
    left: tuple[str, ...] = ()


class PartitionRepository:
    """The partitions of one table. Calls of several processes at a time leave what one call leaves."""

    def __init__(self, transactions: Transactions, partitioned: Partitioned, *, keeps_unfinished: bool) -> None:
        """Use `transactions`.

        With `keeps_unfinished` rows belong to runs, and those of runs that are unfinished or ended recently outlive
        their partition.
        """
        self._transactions = transactions
        self._partitioned = partitioned
        self._keeps_unfinished = keeps_unfinished

    @property
    def kind(self) -> str:
        """Name of the partitions in metrics and in the log: `run_events_days`."""
        return f"{self._partitioned.table}_{self._partitioned.period.name.lower()}s"

    @property
    def table(self) -> str:
        """The partitioned table's name."""
        return self._partitioned.table

    async def prepare(self) -> int:
        """Create the partitions of the current and the next period that are missing; return how many.

        The period's rows in the default partition are moved into the new one. The current period gets none if these
        are more than can be moved while writers wait. A default partition that an interrupted call left closed is
        opened again. Raises DatabaseBusy if a lock is not free.
        """
        if await is_closed(self._transactions, self._partitioned):
            log.warning("default partition found closed, perhaps by an interrupted change", kind=self.kind)
        if not await self._missing(self._transactions):
            await self._open_default()
            return 0
        created = 0
        if (await self._transactions.fetch(_SIZE, table=self._partitioned.default))[0]["bytes"] <= MOST_READ_BYTES:
            created = await self._transactions.run(self._create_missing)
        return created + await self._create_next()

    async def drop_expired(self, hours: int) -> Dropped:
        """Drop the partitions whose rows have all been kept for `hours` since their period, or their run, ended.

        Raises DatabaseBusy if a lock is not free, DatabaseUnusable if another process was faster.
        """
        partitions, now = await self._list(self._transactions)
        expired = [each for each in partitions if each.end <= first_id(now - timedelta(hours=hours))]
        count, left = 0, []
        for partition in sorted(expired, key=lambda each: each.end):
            kept = await self._unexpired_runs(partition, hours)
            if kept is None:
                left.append(partition.name)
            else:
                count += await self._drop(partition, kept)
        return Dropped(count, tuple(left))

    async def _list(self, tx: Statements) -> tuple[Sequence[Partition], datetime]:
        """Return the partitions but the default one, and the database's time."""
        rows = await tx.fetch(_LIST, table=self.table)
        read = [(row["name"], _BOUNDS.search(row["bounds"] or "")) for row in rows]
        partitions = [
            Partition(name, None if found["first"] is None else UUID(found["first"]), UUID(found["end"]))
            for name, found in read
            if found is not None
        ]
        return partitions, rows[0]["now"]

    async def _missing(self, tx: Statements) -> Sequence[datetime]:
        """Return the starts of the periods that have no partition."""
        partitions, now = await self._list(tx)
        starts = self._partitioned.starts(now)
        return [start for start in starts if not any(each.has(first_id(start)) for each in partitions)]

    async def _create_missing(self, tx: Statements) -> int:
        """Create them under the locks that attaching needs, of which the first keeps other processes out."""
        await tx.fetch(BRIEF)
        await run(tx, f"lock table only {self.table} in share update exclusive mode")
        await run(tx, f"lock table {self._partitioned.default} in access exclusive mode")
        await admit_rows(tx, self._partitioned)
        created = 0
        for start in await self._missing(tx):
            if await self._has_many(tx, start):
                log.info("partition not created, its rows are in the default one", kind=self.kind, start=str(start))
                continue
            create, attach = self._partitioned.create(start)
            await run(tx, create)
            await move_rows(tx, self._partitioned, start)
            await run(tx, attach)
            created += 1
        return created

    async def _create_next(self) -> int:
        """Create the partition of the next period if it is missing still: the default one has many rows."""
        missing, now = await self._missing(self._transactions), (await self._list(self._transactions))[1]
        start = self._partitioned.starts(now)[1]
        if start not in missing or start - now < LEAST_TIME_LEFT:
            await self._open_default()
            return 0
        await attach_beside(self._transactions, self._partitioned, start)
        return 1

    async def _open_default(self) -> None:
        await self._transactions.run(lambda tx: open_default(tx, self._partitioned))

    async def _has_many(self, tx: Statements, start: datetime) -> bool:
        """Whether the default partition has more than MOST_MOVED_ROWS rows of the period."""
        partitioned = self._partitioned
        found = sql(
            """
                select count(*) as rows from (
                    select from {default} where {key} >= :first and {key} < :before limit :most) as found
            """,
            default=partitioned.default,
            key=partitioned.key,
        )
        rows = await tx.fetch(
            found,
            first=first_id(start),
            before=first_id(partitioned.period.next(start)),
            most=MOST_MOVED_ROWS + 1,
        )
        return int(rows[0]["rows"]) > MOST_MOVED_ROWS

    async def _unexpired_runs(self, partition: Partition, hours: int) -> Sequence[UUID] | None:
        """Return the runs whose rows must be kept, None if these are more than can be moved."""
        if not self._keeps_unfinished:
            return ()
        first = await self._first_row(partition)
        if first is None:
            return ()
        kept: list[UUID] = []
        after: UUID | None = first
        while after is not None and len(kept) <= MOST_KEPT_RUNS:
            rows = await self._transactions.fetch(
                _UNEXPIRED_RUNS, after=after, before=partition.end, hours=hours, rows=RUNS_AT_ONCE
            )
            kept += rows[0]["kept"]
            after = UUID(int=rows[0]["last_id"].int + 1) if rows[0]["looked_at"] == RUNS_AT_ONCE else None
        return kept if len(kept) <= MOST_KEPT_RUNS and await self._are_few(partition, kept) else None

    async def _first_row(self, partition: Partition) -> UUID | None:
        query = sql(
            "select {key} as id from {name} order by {key} limit 1", key=self._partitioned.key, name=partition.name
        )
        rows = await self._transactions.fetch(_once(query))
        return rows[0]["id"] if rows else None

    async def _are_few(self, partition: Partition, run_ids: Sequence[UUID]) -> bool:
        """Whether these runs have at most MOST_MOVED_ROWS rows."""
        query = sql(
            "select count(*) as rows from (select from {name} where {key} = any(:ids) limit :most) as found",
            name=partition.name,
            key=self._partitioned.key,
        )
        found = await self._transactions.fetch(_once(query), ids=list(run_ids), most=MOST_MOVED_ROWS + 1)
        return int(found[0]["rows"]) <= MOST_MOVED_ROWS

    async def _drop(self, partition: Partition, kept: Sequence[UUID]) -> int:
        """Drop the partition, moving the rows of the runs `kept` into the default one; return 1, or 0 if it is gone."""

        async def drop(tx: Statements) -> int:
            await tx.fetch(BRIEF)
            await run(tx, f"lock table only {self.table} in access exclusive mode")
            partitions, _ = await self._list(tx)
            if partition not in partitions:
                return 0
            await run(tx, f"alter table {self.table} detach partition {partition.name}")
            if kept:
                moved = sql(
                    "insert into {default} select * from {name} where {key} = any(:ids)",
                    default=self._partitioned.default,
                    name=partition.name,
                    key=self._partitioned.key,
                )
                await tx.fetch(_once(moved), ids=list(kept))
            await run(tx, f"drop table {partition.name}")
            return 1

        return await self._transactions.run(drop)


def partitions_of_runs(transactions: Transactions) -> PartitionRepository:
    """Return the partitions of run events."""
    return PartitionRepository(transactions, RUN_EVENTS, keeps_unfinished=True)


def partitions_of_calls(transactions: Transactions) -> PartitionRepository:
    """Return the partitions of model calls."""
    return PartitionRepository(transactions, MODEL_CALLS, keeps_unfinished=False)


def _once(statement: Statement) -> Statement:
    """Return the statement as one that no connection keeps prepared: it names a partition."""
    return Statement(statement.text, statement.names, is_cached=False)
