"""Transactions on a replica, at DATABASE_READ_URL: how old its data is, and when the primary has to answer instead.

`db/reads.py` runs reads here first. Each transaction begins with a statement about the replica: its age, its schema
and whether it belongs to the primary. A replica that fails is left alone for AGAIN_SECONDS.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

import structlog

from throughline.db.connection.address import DATABASE_READ_URL, Address, parse_address
from throughline.db.connection.failures import (
    DRIVER_ERRORS,
    LOCK_NOT_FREE,
    ROLLED_BACK,
    PoolTimeout,
    is_connection_lost,
    sqlstate,
)
from throughline.db.connection.migrations import head_revision, is_known
from throughline.db.connection.pool import ConnectionPool, PoolConfig, Row, Statement, statement
from throughline.db.connection.transactions import Statements, Transactions
from throughline.domain.replica import ANSWERS, UNUSED, ReplicaAge, ReplicaReport

REPLICA_POOL_SIZE = 4
"""Most connections of a process to the replica: its reads are few and long."""

POOL_TIMEOUT_SECONDS, CONNECT_SECONDS, ADMISSION_SECONDS = 1.0, 1.5, 1.0
"""How long a read waits for a free connection, for a new one to a host, and for the replica's first answers.

The primary answers after that, so these are shorter than its own limits.
"""

IDLE_SECONDS = 60.0
AGAIN_SECONDS = 10.0
"""How long a replica that failed is not asked."""

LOG_SECONDS = 60.0

# The first user is the same on a replica of this database, and another one in another database.
_FIRST_USER_SQL = "select id from users order by id limit 1"

# A server without recovery functions, or with a subscription or follower reads, does not tell how old its data is.
_STATE = """
    select clock_timestamp() as now, (select version_num from alembic_version) as revision,
        ({first_user}) as first_user,
        coalesce(current_setting('yb_read_from_followers', true), 'off') = 'on' or exists (
            select from pg_subscription s join pg_database d on d.oid = s.subdbid
            where d.datname = current_database()) as is_copied, {age}
"""
_AGE = """pg_is_in_recovery() as is_standby, pg_last_wal_replay_lsn() is not null as is_replaying,
        pg_last_xact_replay_timestamp() as replayed_at"""
_NO_AGE = "true as is_standby, false as is_replaying, cast(null as timestamptz) as replayed_at"
_WITH_AGE, _WITHOUT_AGE = (statement(_STATE.format(first_user=_FIRST_USER_SQL, age=age)) for age in (_AGE, _NO_AGE))
_FIRST_USER = statement(_FIRST_USER_SQL)
_HEARTBEAT = statement("select max(heartbeat_at) as newest from processes")
"""The newest sign of life that a process wrote: the primary has a recent one, and no copy that takes writes itself."""

REPLICA_FAILURES = (*DRIVER_ERRORS, AttributeError, LookupError, UnicodeError)
"""What a failed transaction raises; the last three if the server is none that the driver knows."""

_LACKS_FUNCTIONS = {"0A000", "42883"}
"""SQLSTATEs of servers that are no PostgreSQL and have no recovery functions, or refuse them."""

AWAY, BUSY, CONFLICT, LATE, SCHEMA, FOREIGN = "away", "busy", "conflict", "late", "schema", "foreign"
MISSING, UNINDEXED, OLDER = "missing", "unindexed", "older"
REASONS = (AWAY, BUSY, CONFLICT, LATE, SCHEMA, FOREIGN, MISSING, UNINDEXED, OLDER)
"""All reasons for which the primary answers instead of the replica."""

QUIET = frozenset({MISSING, UNINDEXED, OLDER})
"""Reasons that are no fault of the replica: it lacks what is very new, is older than another, or the read is wrong."""

_EXPLAINED = {
    AWAY: "cannot be reached, is full, refuses the connection, is starting, or does not answer in time",
    BUSY: "has no connection of this process free, or a lock was not free",
    CONFLICT: "cancelled a query that conflicts with recovery",
    LATE: "lags more than DATABASE_READ_MAX_LAG_SECONDS, has replayed nothing since it started, or is no replica "
    "and has no recent heartbeat of a process",
    SCHEMA: "has an older schema, or none",
    FOREIGN: "has other users: it is another database, or lags far behind",
}

log = structlog.get_logger(__name__)
T = TypeVar("T")


def explain_refusal(reason: str) -> str:
    """Return what is wrong with the replica, for operators."""
    return f"the replica {_EXPLAINED[reason]}"


class ReplicaRefused(Exception):
    """The replica gave no answer that may be used, so that the primary has to. `reason` is one of the words above."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """The replica's URL, which may name several servers, and the age from which its data is not used."""

    url: str
    max_lag_seconds: float


def replica_address(url: str) -> Address:
    """Return the address in DATABASE_READ_URL. Raises DatabaseUnusable if it cannot be parsed.

    All transactions there set their own limits, as behind a pooler, so that a pooler may precede the replica, too.
    """
    return replace(parse_address(url, DATABASE_READ_URL), is_pooled=True)


class Replica:
    """The replica of one process: its connections, whether it is asked now, and its state for operators."""

    def __init__(
        self, config: ReplicaConfig, primary: Transactions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare the connections. `primary` tells which users it has. Raises DatabaseUnusable for an invalid URL."""
        address = replica_address(config.url)
        self._place, self._config, self._primary, self._clock = address.place, config, primary, clock
        self.admission_seconds = ADMISSION_SECONDS + 2 * CONNECT_SECONDS * len(address.hosts)
        pool = PoolConfig(
            size=REPLICA_POOL_SIZE,
            timeout_seconds=POOL_TIMEOUT_SECONDS,
            idle_seconds=IDLE_SECONDS,
            connect_seconds=CONNECT_SECONDS,
            is_read_only=True,
        )
        self.pool = ConnectionPool(address, pool)
        self.on_read: Callable[[str], None] = lambda _: None
        """Called after each read with `answers`, or with the reason for which the primary answers."""
        self._state = UNUSED
        self._as_of: datetime | None = None
        self._first_user: object = None
        self._ask_at = float("-inf")
        self._log_at: dict[str, float] = {}
        self._statement = _WITH_AGE

    def report(self) -> ReplicaReport:
        """Return the replica's state at its last use."""
        is_left_alone = self._clock() < self._ask_at
        state = self._state if is_left_alone or self._state == ANSWERS else UNUSED
        return ReplicaReport(self._place, state, self._as_of)

    def may_ask(self) -> bool:
        """Whether the replica should be asked now. After a failure one read asks it, and the others do not wait."""
        now = self._clock()
        if now < self._ask_at:
            self.on_read(self._state)
            return False
        if self._state not in {UNUSED, ANSWERS}:
            self._ask_at = now + AGAIN_SECONDS
        return True

    def note_well(self) -> None:
        """Note that the replica has answered, be it that it lacks something: it is asked by all reads again."""
        if self._state not in {UNUSED, ANSWERS}:
            log.info("replica used again", place=self._place)
        self._state, self._ask_at = ANSWERS, float("-inf")

    def note_answer(self, age: ReplicaAge | None) -> None:
        """Note the age of an answer that is used."""
        self._as_of = None if age is None else age.as_of
        self.on_read(ANSWERS)

    def note_refusal(self, reason: str) -> None:
        """Note that the primary answers for this reason; each is logged at most once in LOG_SECONDS."""
        self.on_read(reason)
        now = self._clock()
        if reason in QUIET | {CONFLICT}:
            self._ask_at = float("-inf")  # one that failed is asked by the next read, and by no other meanwhile
        elif reason != BUSY:
            self._state, self._ask_at = reason, now + AGAIN_SECONDS
            self._statement = _WITH_AGE
        if reason not in QUIET and now >= self._log_at.get(reason, now):
            self._log_at[reason] = now + LOG_SECONDS
            log.warning("replica not used", reason=reason, place=self._place, explanation=explain_refusal(reason))

    async def admit(self, tx: Statements) -> ReplicaAge | None:
        """Return the age of the replica's data in a transaction there, None if it is a primary.

        Raises ReplicaRefused if its data must not be used, DRIVER_ERRORS.
        """
        try:
            (row,) = await tx.fetch(self._statement)
        except DRIVER_ERRORS as error:
            if sqlstate(error) in _LACKS_FUNCTIONS and self._statement is _WITH_AGE:
                self._statement = _WITHOUT_AGE
            raise
        if row["revision"] != head_revision() and is_known(row["revision"]):
            raise ReplicaRefused(SCHEMA)
        await self._check_users(row["first_user"])
        most = timedelta(seconds=self._config.max_lag_seconds)
        if row["is_standby"] or row["is_copied"]:
            return _age(row, most)
        (found,) = await tx.fetch(_HEARTBEAT)
        if found["newest"] is None or row["now"] - found["newest"] > most:
            raise ReplicaRefused(LATE)
        return None

    async def _check_users(self, first_user: object) -> None:
        """Raise ReplicaRefused if the replica's first user is not the primary's."""
        if first_user is not None and first_user == self._first_user:
            return
        rows = await self._primary.fetch(_FIRST_USER)
        self._first_user = rows[0]["id"] if rows else None
        if first_user != self._first_user:
            raise ReplicaRefused(FOREIGN)


def _age(row: Row, most: timedelta) -> ReplicaAge:
    """Return the age of a copy's data. Raises ReplicaRefused if it is above `most`, or if a standby tells none.

    A commit is reported once its record is written, and a record is replayed after those before it. So what was
    committed before the last replayed commit is there. On an idle primary heartbeats of processes are commits, too.
    """
    as_of: datetime | None = row["replayed_at"]
    if row["is_copied"]:
        return ReplicaAge(None)
    if (as_of is None and row["is_replaying"]) or (as_of is not None and row["now"] - as_of > most):
        raise ReplicaRefused(LATE)
    return ReplicaAge(as_of)


def reason_of(error: BaseException) -> str:
    """Return for which reason a failed transaction leaves the answer to the primary."""
    code = sqlstate(error)
    if code in ROLLED_BACK:  # the standby cancelled it, since it had to replay the removal of rows that it reads
        return CONFLICT
    if isinstance(error, PoolTimeout) or code == LOCK_NOT_FREE:
        return BUSY
    return SCHEMA if code.startswith("42") and code != "42501" else AWAY


class ReplicaTransactions(Transactions):
    """The transactions of one answer on a replica. A failure raises ReplicaRefused, since the primary can answer."""

    def __init__(self, replica: Replica, note_age: Callable[[ReplicaAge | None], None]) -> None:
        """Use the connections of `replica`. `note_age` is called with the age of the data of each transaction."""
        super().__init__(replica.pool)
        self._replica = replica
        self._note_age = note_age

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        """Run one statement in a transaction. Raises ReplicaRefused."""
        return await self.run(lambda tx: tx.fetch(statement, **parameters))

    async def run(self, intent: Callable[[Statements], Awaitable[T]]) -> T:
        """Run `intent` in one transaction. Raises ReplicaRefused.

        It is tried once more, at once: the connection may be left from before a restart of the server.
        """
        try:
            return await self._try(intent)
        except REPLICA_FAILURES as error:
            if not is_connection_lost(error) and sqlstate(error) not in _LACKS_FUNCTIONS:
                raise ReplicaRefused(reason_of(error)) from error
        try:
            return await self._try(intent)
        except REPLICA_FAILURES as error:
            raise ReplicaRefused(reason_of(error)) from error

    async def _try(self, intent: Callable[[Statements], Awaitable[T]]) -> T:
        is_admitted, failure = False, None
        async with asyncio.timeout(self._replica.admission_seconds) as limit:

            async def admitted(tx: Statements) -> T:
                nonlocal is_admitted
                self._note_age(await self._replica.admit(tx))
                is_admitted = True
                limit.reschedule(None)
                return await intent(tx)

            try:
                return await self.try_once(admitted)
            except (asyncio.CancelledError, *REPLICA_FAILURES) as error:
                failure = error
                raise
            finally:
                if is_admitted and (failure is None or reason_of(failure) in {CONFLICT, BUSY}):
                    self._replica.note_well()


async def check_replica(config: ReplicaConfig, primary: Transactions) -> ReplicaReport:
    """Return the replica's state after a read there. Raises DatabaseUnusable for an invalid URL."""
    replica = Replica(config, primary)
    ages: list[ReplicaAge | None] = []
    try:
        await ReplicaTransactions(replica, ages.append).fetch(_FIRST_USER)
        replica.note_answer(ages[-1])
    except ReplicaRefused as refused:
        return replace(replica.report(), state=refused.reason)
    finally:
        await replica.pool.close()
    return replica.report()
