"""The creation of a partition beside a default one with many rows, while readers and writers of these go on.

Attaching a partition reads the whole default one under a lock that nobody shares, unless a check constraint proves that
it has no rows of the period. So the constraint comes first, and is validated under a lock that keeps nobody out.
`db/partitions.py` calls it for a period that has not begun: meanwhile its rows are refused.
"""

from datetime import datetime

import structlog

from throughline.db.connection.pool import Statement
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.statements.sql import sql
from throughline.db.tables.partitions import Partitioned, first_id
from throughline.domain.errors import ThroughlineError

LONGEST_SECONDS = 600
"""Longest time that moving rows and validating may take, seconds."""

BRIEF = sql("""
    select set_config('lock_timeout', '200ms', true), set_config('statement_timeout', '1s', true),
        set_config('enable_seqscan', 'off', true)
""")
"""Limits a transaction that holds up others; what it reads, it reads by an index."""

_LONG = sql(f"""
    select set_config('lock_timeout', '200ms', true), set_config('statement_timeout', '{LONGEST_SECONDS}s', true),
        (select array[set_config('transaction_timeout', '0', true),
                set_config('transaction_timeout', '{LONGEST_SECONDS}s', true)]
            where current_setting('server_version_num')::int >= 170000)
""")
"""Limits a transaction whose locks keep nobody out until its last statements, which read nothing.

PostgreSQL keeps the time of a transaction that has begun, unless it is switched off in between.
"""

_IS_ATTACHED = sql("select exists (select from pg_inherits where inhrelid = to_regclass(:name)) as is_found")

_IS_CLOSED = sql("""
    select exists (select from pg_constraint where conrelid = to_regclass(:table) and conname = :name) as is_found
""")

log = structlog.get_logger(__name__)


def bound_of(partitioned: Partitioned) -> str:
    """Return the name of the default partition's check constraint."""
    return f"{partitioned.default}_bound"


async def attach_beside(transactions: Transactions, partitioned: Partitioned, start: datetime) -> None:
    """Create the partition of the period that starts at `start`, with the rows of the period in the default one.

    Raises DatabaseBusy if a lock is not free; what was done is undone then.
    """

    async def refuse(tx: Statements) -> None:
        await tx.fetch(BRIEF)
        await _refuse_rows(tx, partitioned, start)

    async def create(tx: Statements) -> None:
        await tx.fetch(_LONG)
        await _create(tx, partitioned, start)

    await transactions.run(refuse)
    try:
        await transactions.run(create)
    except BaseException:
        try:
            await transactions.run(lambda tx: open_default(tx, partitioned))
        except ThroughlineError as error:
            log.warning(
                "default partition still refuses rows of a period, retried later",
                table=partitioned.default,
                error=str(error),
            )
        raise


async def is_closed(tx: Statements, partitioned: Partitioned) -> bool:
    """Return whether the default partition has the check constraint, by which it refuses the rows of a period."""
    found = await tx.fetch(_IS_CLOSED, table=partitioned.default, name=bound_of(partitioned))
    return bool(found[0]["is_found"])


async def open_default(tx: Statements, partitioned: Partitioned) -> None:
    """Open the default partition if it is closed; the lock for that is waited for only then."""
    await tx.fetch(BRIEF)
    if await is_closed(tx, partitioned):
        await admit_rows(tx, partitioned)


async def admit_rows(tx: Statements, partitioned: Partitioned) -> None:
    """Drop the check constraint, also one that a killed process left."""
    await run(tx, f"alter table {partitioned.default} drop constraint if exists {bound_of(partitioned)}")


async def move_rows(tx: Statements, partitioned: Partitioned, start: datetime) -> None:
    """Move the rows of a period from the default partition into the period's table, which is not yet attached."""
    within = _within(partitioned, start)
    deleted = f"delete from {partitioned.default} where {within} returning *"  # noqa: S608  # our own names
    await run(
        tx,
        f"with moved as ({deleted}) insert into {partitioned.name(start)} select * from moved",  # noqa: S608  # ours
    )


async def run(tx: Statements, text: str) -> None:
    """Run a statement that changes the schema or names a partition."""
    await tx.fetch(Statement(text, (), is_cached=False, answer_seconds=LONGEST_SECONDS))


async def _refuse_rows(tx: Statements, partitioned: Partitioned, start: datetime) -> None:
    """Add the constraint, which new rows have to meet; stored ones are not read."""
    await run(tx, f"lock table only {partitioned.table} in share update exclusive mode")
    await admit_rows(tx, partitioned)
    if await _is_attached(tx, partitioned.name(start)):
        return
    within = _within(partitioned, start)
    check = f"add constraint {bound_of(partitioned)} check (not ({within})) not valid"
    await run(tx, f"alter table {partitioned.default} {check}")


async def _create(tx: Statements, partitioned: Partitioned, start: datetime) -> None:
    """Create and fill the partition, then attach it. Only attaching it locks out others, and it reads no rows."""
    name, default = partitioned.name(start), partitioned.default
    await run(tx, f"lock table only {partitioned.table} in share update exclusive mode")
    await run(tx, f"lock table {default} in share update exclusive mode")
    if await _is_attached(tx, name):
        return
    _, attach = partitioned.create(start)
    await run(tx, partitioned.create_table(name, " including indexes"))
    await run(tx, f"alter table {name} add constraint {name}_bound check ({_within(partitioned, start)})")
    await move_rows(tx, partitioned, start)
    await run(tx, f"alter table {default} validate constraint {bound_of(partitioned)}")
    await run(tx, attach)
    await run(tx, f"alter table {name} drop constraint {name}_bound")
    await admit_rows(tx, partitioned)


async def _is_attached(tx: Statements, name: str) -> bool:
    return bool((await tx.fetch(_IS_ATTACHED, name=name))[0]["is_found"])


def _within(partitioned: Partitioned, start: datetime) -> str:
    """Return the condition that an id is of the period that starts at `start`."""
    first, end = first_id(start), first_id(partitioned.period.next(start))
    return f"{partitioned.key} >= '{first}' and {partitioned.key} < '{end}'"
