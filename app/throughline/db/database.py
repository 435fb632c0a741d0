"""The database as the rest of the service uses it: one repository per kind of data, and the notifier."""

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
from throughline.db.retention.old_rows import RetentionRepository
from throughline.db.retention.old_sessions import ARCHIVED, EXPIRED, OldSessions
from throughline.db.runs.events import EventRepository
from throughline.db.runs.followed_runs import FollowedRuns
from throughline.db.runs.repository import RunRepository
from throughline.db.search.message_vectors import MessageVectorRepository
from throughline.db.search.repository import SearchRepository
from throughline.db.sessions.citations import CitationRepository
from throughline.db.sessions.message_cache import MessageCache
from throughline.db.sessions.messages import MessageRepository
from throughline.db.sessions.pins import PinRepository
from throughline.db.sessions.repository import SessionRepository
from throughline.db.slack.database import SlackDatabase, slack_database
from throughline.db.slack.inbox import InboxConfig
from throughline.db.slack.participants import ParticipantRepository
from throughline.db.summaries.calibrations import CalibrationRepository
from throughline.db.summaries.repository import SummaryRepository
from throughline.db.usage import UsageRepository
from throughline.db.users.access_tokens import AccessTokenRepository
from throughline.db.users.erasure import UserErasure
from throughline.db.users.keys import KeyRepository
from throughline.db.users.users import UserRepository
from throughline.domain.submission import Caps

LEASE_ANSWER_SECONDS = 2.0
"""Time limit for a heartbeat's answer, so that it is retried well before the lease (10 s by default) expires."""

IDLE_SECONDS = 60.0
"""Idle time after which a connection for leases or for process heartbeats is replaced.

Network devices may have dropped it by then.
"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """The database's URLs and this process's share of its resources; see DatabaseUrls for the two URLs.

    In addition to `pool_size` there are a connection that listens and one for process heartbeats and readiness. Once a
    lease is held, a further one renews leases. `loaded_rows_bytes` limits the cache of message rows. `caps` limits
    queued and running runs. `search_language` is the language whose stemming rules search uses.
    """

    url: str
    pool_size: int = 10
    pool_timeout_seconds: float = 5.0
    caps: Caps = field(default_factory=Caps)
    search_language: str = "english"
    loaded_rows_bytes: int = 64_000_000
    keeps_costs_of_erased_users: bool = True
    direct_url: str = ""

    @property
    def urls(self) -> DatabaseUrls:
        """Both database URLs."""
        return DatabaseUrls(self.url, self.direct_url)


class Database:
    """Owner of the pool and the other connections, with a repository for each kind of stored data.

    Leases are renewed outside the pool: if slow requests used all of it, other processes would take over the runs.
    Process heartbeats and readiness use a connection of their own too, so that load does not affect them.
    """

    def __init__(self, config: DatabaseConfig) -> None:
        """Create the repositories; `open` also connects and checks."""
        self._config = config
        self._pool, self._lease_pool, self._life_pool = _make_pools(config)
        self._transactions = Transactions(self._pool)
        self.notifier = Notifier(config.urls.session_address())
        self.users = UserRepository(self._transactions)
        loaded = MessageCache(config.loaded_rows_bytes)
        self.keys, self.access_tokens, self.user_erasure = (
            KeyRepository(self._transactions, self.users),
            AccessTokenRepository(self._transactions),
            UserErasure(self._transactions, self.notifier, loaded, keeps_costs=config.keeps_costs_of_erased_users),
        )
        self.sessions = SessionRepository(self._transactions, self.notifier, loaded)
        self.messages = MessageRepository(self._transactions, loaded)
        self.citations = CitationRepository(self._transactions)
        self.history = SearchRepository(self._transactions, self.messages, config.search_language)
        self.memories = MemoryRepository(self._transactions, config.search_language)
        self.memory_vectors, self.message_vectors = (
            MemoryVectorRepository(self._transactions),
            MessageVectorRepository(self._transactions),
        )
        self.summaries, self.calibrations = (
            SummaryRepository(self._transactions),
            CalibrationRepository(self._transactions),
        )
        self.archived_sessions, self.expired_sessions = (
            OldSessions(self._transactions, loaded, ARCHIVED),
            OldSessions(self._transactions, loaded, EXPIRED),
        )
        self.pins = PinRepository(self._transactions)
        self.participants = ParticipantRepository(self._transactions)
        self.events = EventRepository(self._transactions, self.notifier)
        self.followed_runs = FollowedRuns(self._transactions, self.notifier, self.events)
        self._leases, life = Transactions(self._lease_pool), Transactions(self._life_pool)
        self.jobs = JobQueue(self._transactions, self._leases, self.notifier.jobs)
        self.usage, self.retention = UsageRepository(self._transactions), RetentionRepository(self._transactions)
        self.processes, self._readiness = ProcessRepository(life), ReadinessCheck(life, self._transactions)
        self.runs = RunRepository(self._transactions, self._leases, self.notifier, config.caps, loaded)

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

    def open_slack(self, agent: str) -> SlackDatabase:
        """Return the repositories of the Slack interface; `agent` is the name of the agent that answers there."""
        return slack_database(self._transactions, self._leases, self.notifier, InboxConfig(agent, self._config.caps))

    async def prepare_vectors(self, *, may_create: bool) -> None:
        """Create the table for memories' vectors if it is missing (db/memories/vector_table.py).

        Must be called before `memory_vectors` is used. Raises DatabaseUnusable if the table is missing and `may_create`
        is False, or if it cannot be created. Raises DatabaseUnavailable.
        """
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
    """Return the pool for requests and turns, and the direct connections for leases and for heartbeats of processes."""
    shared = PoolConfig(size=config.pool_size, timeout_seconds=config.pool_timeout_seconds)
    of_leases = replace(shared, size=1, answer_seconds=LEASE_ANSWER_SECONDS, idle_seconds=IDLE_SECONDS)
    of_life = replace(shared, size=1, idle_seconds=IDLE_SECONDS)
    direct = config.urls.session_address()
    shared_pool = ConnectionPool(config.urls.shared_address(), shared)
    return shared_pool, ConnectionPool(direct, of_leases), ConnectionPool(direct, of_life)
