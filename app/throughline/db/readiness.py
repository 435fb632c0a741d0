"""Readiness: whether turns can be stored now, given the server, the schema and free disk space."""

import asyncio
import time

import structlog

from throughline.db.connection.migrations import OLDEST_SERVER, check_released, head_revision, is_known
from throughline.db.connection.statement import Row
from throughline.db.connection.transactions import Transactions
from throughline.db.statements.sql import sql
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable

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
log = structlog.get_logger(__name__)


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
