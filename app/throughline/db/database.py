"""The database as the rest of the service uses it: one repository per kind of data, and the notifier."""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from throughline.db.connection.address import Address, DatabaseUrls
from throughline.db.connection.migrations import (
    OLDEST_SERVER,
    check_known,
    check_released,
    head_revision,
    is_known,
    upgrade,
)
from throughline.db.connection.notifier import Notifier
from throughline.db.connection.pool import ConnectionPool, PoolConfig, Row
from throughline.db.connection.pooler import check_direct, check_urls
from throughline.db.connection.replica import REPLICA_POOL_SIZE, Replica, ReplicaConfig, replica_address
from throughline.db.connection.transactions import Transactions
from throughline.db.front_end_storage import FrontEndStorage, ParticipantRepository
from throughline.db.memories import MemoryRepository, MemoryVectorRepository, prepare_vectors
from throughline.db.reads import ReadRepositories, Reads, ReplicaSearch
from throughline.db.retention import ARCHIVED, EXPIRED, OldSessions, RetentionRepository
from throughline.db.runs.all_runs import AllRunsRepository
from throughline.db.runs.events import EventRepository
from throughline.db.runs.followed_runs import RunFollower
from throughline.db.runs.repository import RunRepository
from throughline.db.search.message_vectors import MessageVectorRepository
from throughline.db.search.repository import SearchRepository
from throughline.db.service_status import ProcessRepository, StatusRepository
from throughline.db.sessions.citations import CitationRepository
from throughline.db.sessions.message_cache import MessageCache
from throughline.db.sessions.messages import MessageRepository
from throughline.db.sessions.pins import PinRepository
from throughline.db.sessions.repository import SessionRepository
from throughline.db.side_jobs import JobQueue
from throughline.db.statements.sql import sql
from throughline.db.summaries.repository import SummaryRepository
from throughline.db.usage import CalibrationRepository, UsageRepository
from throughline.db.user_erasure import UserErasure
from throughline.db.users import AccessTokenRepository, KeyRepository, UserRepository
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable
from throughline.domain.run import Caps
from throughline.execution.error_boundary import running_concurrently
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer, choose_data_dir, has_cluster

_SERVER = sql("""
    select current_setting('server_version_num')::integer as version, current_setting('server_encoding') as encoding,
        current_setting('fsync') as fsync, current_setting('synchronous_commit') as synchronous_commit,
        to_regclass('alembic_version') is not null as has_schema
""")
_WRITE = sql("""
    insert into write_checks (is_only, checked_at) values (true, now())
    on conflict (is_only) do update set checked_at = excluded.checked_at
""")
WRITE_CHECK_SECONDS = 1.0
FULL_SECONDS = 5.0
_REVISION = sql("select version_num from alembic_version")

# A role without rights sees of other sessions' rows little more than these columns.
_CONNECTION_LIMIT = sql("""
    with used as (
        select count(*) as of_server, count(*) filter (where a.usename = current_user) as of_role,
            count(*) filter (where a.datname = current_database()) as of_database,
            count(*) filter (where a.datname = current_database() and a.usename = current_user
                and a.application_name like 'throughline%') as own
        from pg_stat_activity a where a.datid is not null and a.usesysid is not null and a.pid <> pg_backend_pid()
    ), limits as (
        select current_setting('max_connections')::integer
                - current_setting('superuser_reserved_connections')::integer
                - coalesce(current_setting('reserved_connections', true)::integer, 0) as of_server,
            (select nullif(r.rolconnlimit, -1) from pg_roles r where r.rolname = current_user) as of_role,
            (select nullif(d.datconnlimit, -1) from pg_database d where d.datname = current_database()) as of_database
    )
    select least(l.of_server, l.of_role, l.of_database) as allowed,
        greatest(0, least(l.of_server - u.of_server, l.of_role - u.of_role, l.of_database - u.of_database)) as free,
        u.own
    from limits l, used u
""")


@dataclass(frozen=True, slots=True)
class ConnectionLimit:
    """The connections that the server, the role and the database allow together, and those that nobody uses now.

    `own` are those in use by other processes of this service, with the same database and role.
    """

    allowed: int
    free: int
    own: int = 0


class ReadinessCheck:
    """A check that queries the server and writes one row.

    It uses a connection outside the requests' pool, because a fully used pool is no outage.
    """

    def __init__(self, transactions: Transactions, requests: Transactions) -> None:
        """Check through `transactions`; `requests` are the transactions of turns, which may have met a full disk."""
        self._transactions = transactions
        self._requests = requests
        self._asking: asyncio.Task[str] | None = None
        self._written_at = float("-inf")

    async def check(self) -> str:
        """Return the schema's revision if turns can be stored now. Raises DatabaseUnavailable, DatabaseUnusable.

        The revision is this version's or a newer one: running processes continue during an upgrade, since migrations
        only add. Callers need no API key, so concurrent callers share one check.
        """
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask(), name="check readiness")
            self._asking.add_done_callback(self._answered)
        return await asyncio.shield(self._asking)

    def _answered(self, asked: asyncio.Task[str]) -> None:
        self._asking = None
        if not asked.cancelled():
            asked.exception()  # retrieved, since all callers may be gone

    async def _ask(self) -> str:
        server = (await self._transactions.fetch(_SERVER))[0]
        _check_server(server)
        rows = await self._transactions.fetch(_REVISION) if server["has_schema"] else ()
        revision = str(rows[0]["version_num"]) if rows else None
        check_released(revision)
        if revision is None or (revision != head_revision() and is_known(revision)):
            found = "no schema" if revision is None else f"schema revision {revision}"
            raise DatabaseUnusable(
                f"The database has {found}, this version needs {head_revision()}. Run `throughline db upgrade`."
            )
        await self._check_writes()
        return revision

    async def _check_writes(self) -> None:
        """Write one row, at most once per WRITE_CHECK_SECONDS, since a server with a full disk can still read.

        A single row may still fit when a message does not. So a DatabaseFull error of the last FULL_SECONDS also raises
        DatabaseUnavailable.
        """
        if self._requests.was_full(FULL_SECONDS) or self._transactions.was_full(FULL_SECONDS):
            raise DatabaseUnavailable("The database's disk was full a moment ago.", delay_seconds=FULL_SECONDS)
        if time.monotonic() - self._written_at < WRITE_CHECK_SECONDS:
            return
        await self._transactions.fetch(_WRITE)
        self._written_at = time.monotonic()


def _check_server(server: Row) -> None:
    if server["version"] < OLDEST_SERVER:
        raise DatabaseUnusable(
            f"The server is PostgreSQL {server['version'] // 10_000}. "
            f"PostgreSQL {OLDEST_SERVER // 10_000} or newer is needed."
        )
    if server["encoding"] != "UTF8":
        raise DatabaseUnusable(f"The database has the encoding {server['encoding']}. Create one with UTF8.")
    if "off" in {server["fsync"], server["synchronous_commit"]}:
        log.warning("database not durable", fsync=server["fsync"])


LEASE_ANSWER_SECONDS = 2.0
"""Time limit for a heartbeat's answer, so that it is retried well before the lease (10 s by default) expires."""

IDLE_SECONDS = 60.0
"""Idle time after which a connection for leases or for process heartbeats is replaced.

Network devices may have dropped it by then.
"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """The database's URLs and this process's share of its resources; see DatabaseUrls for the URLs and `listens`.

    In addition to `pool_size` there are a connection that listens and one for process heartbeats and readiness. Once a
    lease is held, a further one renews leases. `loaded_rows_bytes` limits the cache of message rows. `caps` limits
    queued and running runs. `search_language` is the language whose stemming rules search uses. `front_ends` describes
    the tables of front ends. `replica` is the server for reads that may be late.
    """

    url: str
    pool_size: int = 10
    pool_timeout_seconds: float = 5.0
    caps: Caps = field(default_factory=Caps)
    search_language: str = "english"
    loaded_rows_bytes: int = 64_000_000
    keeps_costs_of_erased_users: bool = True
    front_ends: tuple[FrontEndStorage, ...] = ()
    direct_url: str = ""
    listens: bool = True
    has_only_pooler: bool = False
    replica: ReplicaConfig | None = None

    @property
    def urls(self) -> DatabaseUrls:
        return DatabaseUrls(self.url, self.direct_url, self.listens, self.has_only_pooler)

    def at(self, urls: DatabaseUrls) -> "DatabaseConfig":
        """Return the configuration for another database."""
        return replace(
            self,
            url=urls.url,
            direct_url=urls.direct_url,
            listens=urls.listens,
            has_only_pooler=urls.has_only_pooler,
        )

    @property
    def server_connections(self) -> int:
        """The most connections of this process to the server itself; those to a pooler are not counted."""
        if self.has_only_pooler:
            return 0
        direct = DIRECT_CONNECTIONS if self.listens else DIRECT_CONNECTIONS - 1
        shared = 0 if self.direct_url else self.pool_size
        return direct + shared + self._replica_connections_here

    @property
    def _replica_connections_here(self) -> int:
        """The connections for reads that may be late, if their address leads to the server itself, too."""
        if self.replica is None:
            return 0
        here = self.urls.session_address().hosts
        return REPLICA_POOL_SIZE if set(replica_address(self.replica.url).hosts) & set(here) else 0


DIRECT_CONNECTIONS = 3
"""Connections of a process beside its pool: one listens, one renews leases, one writes process heartbeats."""


class Database:
    """Owner of the pool and the other connections, with a repository for each kind of stored data.

    Leases are renewed outside the pool: if slow requests used all of it, other processes would take over the runs.
    Process heartbeats and readiness use a connection of their own too, so that load does not affect them.
    """

    def __init__(self, config: DatabaseConfig) -> None:
        """Create the repositories; `open` also connects and checks."""
        self._config, front_ends, keeps_costs = config, config.front_ends, config.keeps_costs_of_erased_users
        self._pool, self._lease_pool, self._life_pool = _make_pools(config)
        transactions = self._transactions = Transactions(self._pool)
        self.notifier = Notifier(config.urls.session_address(), listens=config.listens)
        self.users = UserRepository(transactions)
        loaded = MessageCache(config.loaded_rows_bytes)
        self.keys, self.access_tokens, self.user_erasure = (
            KeyRepository(transactions, self.users),
            AccessTokenRepository(transactions),
            UserErasure(transactions, self.notifier, loaded, front_ends, keeps_costs=keeps_costs),
        )
        self.sessions = SessionRepository(transactions, self.notifier, loaded)
        self.messages = MessageRepository(transactions, loaded)
        self.citations = CitationRepository(transactions)
        self._leases, life = Transactions(self._lease_pool), Transactions(self._life_pool)
        self.jobs = JobQueue(transactions, self._leases, self.notifier)
        self.history = SearchRepository(transactions, self.messages, self.jobs, config.search_language)
        self.memories = MemoryRepository(transactions, config.search_language)
        self.memory_vectors, self.message_vectors = (
            MemoryVectorRepository(transactions),
            MessageVectorRepository(transactions),
        )
        self.summaries, self.calibrations, self.all_runs = (
            SummaryRepository(transactions, self.notifier),
            CalibrationRepository(transactions),
            AllRunsRepository(transactions),
        )
        self.archived_sessions, self.expired_sessions = (
            OldSessions(transactions, loaded, ARCHIVED),
            OldSessions(transactions, loaded, EXPIRED),
        )
        self.pins, self.participants = PinRepository(transactions), ParticipantRepository(transactions, front_ends)
        self.events = EventRepository(transactions, self.notifier)
        self.followed_runs = RunFollower(transactions, self.notifier, self.events)
        self.usage, self.retention = UsageRepository(transactions), RetentionRepository(transactions, front_ends)
        self.processes, self._readiness = ProcessRepository(life), ReadinessCheck(life, transactions)
        self.runs = RunRepository(transactions, self._leases, self.notifier, config.caps, loaded)
        self.status, self.reads = StatusRepository(transactions, front_ends), self._make_reads()

    @classmethod
    async def open(cls, config: DatabaseConfig) -> "Database":
        """Connect, check server and schema, and listen for notifications.

        Raises DatabaseUnavailable, and DatabaseUnusable, also if the schema is newer than this version.
        """
        database = cls(config)
        try:
            check_known(await ReadinessCheck(database._transactions, database._transactions).check())
            await database.notifier.start()
        except BaseException:
            await database.close()
            raise
        return database

    @property
    def access(self) -> "FrontEndAccess":
        """What a front end's own repositories use of this database."""
        return FrontEndAccess(self._transactions, self._leases, self.notifier, self._config.caps)

    def _make_reads(self) -> Reads:
        """Return the reads that a replica may answer. Its repositories share no cache with those of the primary."""
        config, nothing = self._config, MessageCache(0)

        def make_repositories(transactions: Transactions) -> ReadRepositories:
            messages = MessageRepository(transactions, nothing)
            return ReadRepositories(
                SessionRepository(transactions, self.notifier, nothing),
                messages,
                UsageRepository(transactions),
                ReplicaSearch(transactions, messages, self.jobs, config.search_language),
                MessageVectorRepository(transactions),
            )

        primary = ReadRepositories(self.sessions, self.messages, self.usage, self.history, self.message_vectors)
        replica = None if config.replica is None else Replica(config.replica, self._transactions)
        return Reads(primary, replica, make_repositories)

    async def prepare_vectors(self, *, may_create: bool) -> None:
        """Create the table for memories' vectors if it is missing (db/memories.py).

        Must be called before `memory_vectors` is used. Raises DatabaseUnusable if the table is missing and `may_create`
        is False, or if it cannot be created. Raises DatabaseUnavailable.
        """
        await prepare_vectors(self._config.urls.for_sessions, may_create=may_create)

    async def close(self) -> None:
        """Close all connections."""
        await self.followed_runs.close()
        await self.reads.close()
        await self.notifier.close()
        await self._lease_pool.close()
        await self._life_pool.close()
        await self._pool.close()

    async def check_ready(self) -> str:
        """Return the schema's revision if turns can be stored now. Raises DatabaseUnavailable, DatabaseUnusable."""
        return await self._readiness.check()


@dataclass(frozen=True, slots=True)
class FrontEndAccess:
    """Access to a database for repositories of a front end. Leases are renewed through `leases`, outside the pool."""

    transactions: Transactions
    leases: Transactions
    notifier: Notifier
    caps: Caps


def _make_pools(config: DatabaseConfig) -> tuple[ConnectionPool, ConnectionPool, ConnectionPool]:
    """Return the pool for requests and turns, and the direct connections for leases and for heartbeats of processes."""
    shared = PoolConfig(size=config.pool_size, timeout_seconds=config.pool_timeout_seconds)
    of_leases = replace(shared, size=1, answer_seconds=LEASE_ANSWER_SECONDS, idle_seconds=IDLE_SECONDS)
    of_life = replace(shared, size=1, idle_seconds=IDLE_SECONDS)
    direct = config.urls.session_address()
    shared_pool = ConnectionPool(config.urls.shared_address(), shared)
    return shared_pool, ConnectionPool(direct, of_leases), ConnectionPool(direct, of_life)


@dataclass(frozen=True, slots=True)
class DatabaseLocation:
    """The database's location: the server at `url`, or, if that is empty, an embedded server.

    The embedded server has its files in `data_dir`, None for the default folder. With a `direct_url`, `url` is a
    connection pooler's: see DatabaseUrls, also for `listens`.
    """

    url: str = ""
    data_dir: Path | None = None
    direct_url: str = ""
    listens: bool = True

    @property
    def urls(self) -> DatabaseUrls:
        """The configured URLs; `url` is empty with the embedded server."""
        return DatabaseUrls(self.url, self.direct_url, self.listens)

    @property
    def description(self) -> str:
        """The location as display text, without role and password. Raises DatabaseUnusable."""
        if not self.url:
            return f"embedded, in {choose_data_dir(self.data_dir)}"
        address = self.urls.session_address()
        return f"{address.url.database or 'of the role'} at {address.place} ({address.setting})"


@asynccontextmanager
async def open_address(where: DatabaseLocation) -> AsyncGenerator[DatabaseUrls]:
    """Yield the configured URLs after checking them, or start the embedded server and yield its URL.

    The embedded server stops at the end. Raises DatabaseUnusable, or DatabaseUnavailable, which names host and port.
    """
    if where.url:
        urls = await check_urls(where.urls)
        with _named(urls.shared_address()):
            yield urls
        return
    async with _embedded(where) as url:
        yield DatabaseUrls(url, listens=where.listens)


@asynccontextmanager
async def open_direct_address(where: DatabaseLocation, *, may_create: bool = True) -> AsyncGenerator[str]:
    """Yield the URL for connections that need a database session of their own, after checking it.

    A configured pooler may be down. Without a configured URL the embedded server runs inside the block. Raises
    DatabaseUnavailable, which names host and port. Raises DatabaseUnusable, also if an embedded database would have to
    be created and `may_create` is False.
    """
    if where.url:
        urls = where.urls
        await check_direct(urls)
        with _named(urls.session_address()):
            yield urls.for_sessions
        return
    if not may_create and not has_cluster(where.data_dir):
        raise DatabaseUnusable(
            f"There is no embedded database in {choose_data_dir(where.data_dir)}, and DATABASE_URL is not set. Set it "
            "to the service's database, or name the folder of its embedded one with --data-dir or DATA_DIR."
        )
    async with _embedded(where) as url:
        yield url


async def read_connection_limit(address: Address) -> ConnectionLimit:
    """Return how many connections are allowed, free, and in use by the service already.

    Raises DatabaseUnavailable, DatabaseUnusable.
    """
    pool = ConnectionPool(address, PoolConfig(size=1, timeout_seconds=5.0))
    try:
        rows = await Transactions(pool).fetch(_CONNECTION_LIMIT)
    finally:
        await pool.close()
    return ConnectionLimit(rows[0]["allowed"], rows[0]["free"], rows[0]["own"])


@contextmanager
def _named(address: Address) -> Generator[None]:
    """Add host and port to DatabaseUnavailable errors raised inside the block."""
    try:
        yield
    except DatabaseUnavailable as error:
        detail = f"PostgreSQL at {address.place} ({address.setting}): {error.detail}"
        raise DatabaseUnavailable(detail, delay_seconds=error.delay_seconds) from None


@asynccontextmanager
async def _embedded(where: DatabaseLocation) -> AsyncGenerator[str]:
    """Run the embedded server inside the block; yield its URL."""
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir=where.data_dir))
    try:
        async with running_concurrently(server.watch, "watch the embedded server"):
            yield server.url
    finally:
        await server.stop()


@asynccontextmanager
async def open_database(where: DatabaseLocation, config: DatabaseConfig, *, migrate: bool) -> AsyncGenerator[Database]:
    """Yield the open database, upgraded to the newest schema first if `migrate`.

    The URLs in `config` are replaced by those of `where`.
    """
    async with open_address(where) as urls:
        if migrate:
            await upgrade(urls.for_sessions)
        database = await Database.open(config.at(urls))
        try:
            yield database
        finally:
            await database.close()
