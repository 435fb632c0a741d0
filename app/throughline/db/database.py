"""The database as the rest of the service sees it: repositories by intent, and the notifier."""

from dataclasses import dataclass, field, replace

import structlog

from throughline.db.connection.address import DatabaseUrls
from throughline.db.connection.migrations import check_known
from throughline.db.connection.notifier import Notifier
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Transactions
from throughline.db.jobs.queue import JobQueue
from throughline.db.memories.repository import MemoryRepository
from throughline.db.memories.vector_table import prepare_vectors
from throughline.db.memories.vectors import MemoryVectorRepository
from throughline.db.processes import ProcessRepository
from throughline.db.readiness import ReadinessCheck
from throughline.db.retention.archived_sessions import ArchiveRepository
from throughline.db.retention.old_rows import RetentionRepository
from throughline.db.runs.events import EventRepository
from throughline.db.runs.followed_runs import FollowedRuns
from throughline.db.runs.repository import RunRepository
from throughline.db.search.repository import SearchRepository
from throughline.db.sessions.loaded_rows import LoadedRows
from throughline.db.sessions.messages import MessageRepository
from throughline.db.sessions.pins import PinRepository
from throughline.db.sessions.repository import SessionRepository
from throughline.db.slack.database import SlackDatabase, slack_database
from throughline.db.slack.inbox import InboxConfig
from throughline.db.slack.participants import ParticipantRepository
from throughline.db.summaries.calibrations import CalibrationRepository
from throughline.db.summaries.repository import SummaryRepository
from throughline.db.users.keys import KeyRepository
from throughline.db.users.users import UserRepository
from throughline.domain.submission import Caps

LEASE_ANSWER_SECONDS = 2.0
"""A beat without an answer is tried again, on a new connection, well before the lease (10 s by default) runs out."""

IDLE_SECONDS = 60.0
"""Nobody uses such a connection while no turn is open, or nobody asks, and what stands between us and the database may
forget it."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """Where the database is and how much of it this process may use; see DatabaseUrls for the two addresses.

    On top of `pool_size` come the connection that listens, the one that a process beats by and readiness asks by and,
    once a lease is held, the one that renews leases.
    `loaded_rows_bytes` bounds the memory for rows of conversations that are kept for their next turn.
    """

    url: str
    pool_size: int = 10
    pool_timeout_seconds: float = 5.0
    caps: Caps = field(default_factory=Caps)
    search_language: str = "english"
    loaded_rows_bytes: int = 64_000_000
    direct_url: str = ""

    @property
    def urls(self) -> DatabaseUrls:
        """Both addresses."""
        return DatabaseUrls(self.url, self.direct_url)


class Database:
    """Owns the pool and the connections beside it; a repository for each kind of thing that is stored.

    Leases are renewed past the pool: where slow requests take all of it, other processes would take the runs over.
    Whether this process is there, and ready, is not told by how busy it is either.
    """

    def __init__(self, config: DatabaseConfig) -> None:
        """Put the repositories together; `open` also connects and checks."""
        self._config = config
        self._pool, self._lease_pool, self._life_pool = _make_pools(config)
        self._transactions = Transactions(self._pool)
        self.notifier = Notifier(config.urls.session_address())
        self.users = UserRepository(self._transactions)
        self.keys = KeyRepository(self._transactions, self.users)
        loaded = LoadedRows(config.loaded_rows_bytes)
        self.sessions = SessionRepository(self._transactions, self.notifier, loaded)
        self.messages = MessageRepository(self._transactions, loaded)
        self.history = SearchRepository(self._transactions, self.messages, config.search_language)
        self.memories = MemoryRepository(self._transactions, config.search_language)
        self.memory_vectors = MemoryVectorRepository(self._transactions)
        self.summaries, self.calibrations = (
            SummaryRepository(self._transactions),
            CalibrationRepository(self._transactions),
        )
        self.archives = ArchiveRepository(self._transactions, loaded)
        self.pins = PinRepository(self._transactions)
        self.participants = ParticipantRepository(self._transactions)
        self.events = EventRepository(self._transactions, self.notifier)
        self.followed_runs = FollowedRuns(self._transactions, self.notifier, self.events)
        self._leases, life = Transactions(self._lease_pool), Transactions(self._life_pool)
        self.jobs = JobQueue(self._transactions, self._leases, self.notifier.jobs)
        self.retention = RetentionRepository(self._transactions)
        self.processes, self._readiness = ProcessRepository(life), ReadinessCheck(life, self._transactions)
        self.runs = RunRepository(self._transactions, self._leases, self.notifier, config.caps)

    @classmethod
    async def open(cls, config: DatabaseConfig) -> "Database":
        """Connect, check that the server and its schema can be used, and listen for notifications.

        Whoever starts on a schema newer than this version is refused. Raises DatabaseUnavailable, DatabaseUnusable.
        """
        database = cls(config)
        try:
            check_known(await ReadinessCheck(database._transactions, database._transactions).check())
            await database.notifier.start()
        except BaseException:
            await database.close()
            raise
        return database

    def open_slack(self, agent: str) -> SlackDatabase:
        """Return what the Slack door works on; `agent` answers there."""
        return slack_database(self._transactions, self._leases, self.notifier, InboxConfig(agent, self._config.caps))

    async def prepare_vectors(self, *, may_create: bool) -> None:
        """See db/memories/vector_table.py; before this, `memory_vectors` may not be used."""
        await prepare_vectors(self._config.urls.for_sessions, may_create=may_create)

    async def close(self) -> None:
        """Close all connections."""
        await self.followed_runs.close()
        await self.notifier.close()
        await self._lease_pool.close()
        await self._life_pool.close()
        await self._pool.close()

    async def check_ready(self) -> str:
        """Return the schema's revision if turns can be stored now. Raises DatabaseUnavailable, DatabaseUnusable."""
        return await self._readiness.check()


def _make_pools(config: DatabaseConfig) -> tuple[ConnectionPool, ConnectionPool, ConnectionPool]:
    """Return the pool that requests and turns share, and those of leases and of signs of life: in no pooler's line."""
    shared = PoolConfig(size=config.pool_size, timeout_seconds=config.pool_timeout_seconds)
    of_leases = replace(shared, size=1, answer_seconds=LEASE_ANSWER_SECONDS, idle_seconds=IDLE_SECONDS)
    of_life = replace(shared, size=1, idle_seconds=IDLE_SECONDS)
    direct = config.urls.session_address()
    shared_pool = ConnectionPool(config.urls.shared_address(), shared)
    return shared_pool, ConnectionPool(direct, of_leases), ConnectionPool(direct, of_life)
