"""The server that all processes of a run share, its databases, and data directories to copy."""

import asyncio
import secrets
import subprocess
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import asyncpg  # type: ignore[import-untyped]  # ships no types
from sqlalchemy import make_url

from fakes.raw_sql import connected
from fakes.run_folder import CLUSTER, run_folder, shared, until_exit
from throughline.db.connection.migrations import upgrade
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

DROP_TRIES = 25
MOST_BYTES = 1_000_000
"""Deleted rows keep their room: a database is dropped where a table with rows to delete takes more than this."""

INSERTED = """
    select oid::regclass::text, pg_stat_get_tuples_inserted(oid) from pg_class
    where relkind = 'r' and relnamespace = 'public'::regnamespace
"""
"""How many rows were ever inserted into each table: the server counts what a connection did before it is gone."""

RESTARTS = """
    select setval(seqrelid, seqstart, false) from pg_sequence where pg_sequence_last_value(seqrelid) is not null
"""
VERSION = "alembic_version"
"""The table whose row stays: the lock of migrations inserts into it, and never commits. The fingerprint has its row."""

FINGERPRINT = """
    select concat_ws(' ', (select string_agg(version_num, ' ') from alembic_version),
        (select count(*) from pg_db_role_setting join pg_database on oid = setdatabase
            where datname = current_database()),
        (select stats_reset from pg_stat_wal),
        (select stats_reset from pg_stat_database where datname = current_database()),
        sum(pg_stat_get_tuples_inserted(oid)), sum(pg_stat_get_tuples_updated(oid)),
        sum(pg_stat_get_tuples_deleted(oid)), (select sum(reltuples) from pg_class))
    from pg_class where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r' and not relisshared
"""
"""Changes when anything but rows was changed, a table was analyzed, or the statistics were reset, as by a crash."""

IS_ALONE = """
    not exists (select from pg_stat_get_activity(null) join pg_database on pg_database.oid = datid
        where datname = current_database() and pid <> pg_backend_pid())
"""
"""Other connections may belong to a program that a test left behind and that would connect again."""

LOCK_TIMEOUT = "10s"
"""Where a late connection holds a lock this long, emptying fails and the database is dropped."""


class DatabasePool:
    """Migrated databases of one test process; nobody else uses what is taken."""

    def __init__(self, server_url: str, template: str) -> None:
        """Copy from the database `template`."""
        self._server_url, self._template = server_url, template
        self._fingerprints: dict[str, str] = {}
        self._inserted: dict[str, dict[str, int]] = {}
        self._idle: list[str] = []

    async def take(self) -> str:
        """Return the address of a database without rows."""
        if self._idle:
            return self._idle.pop()
        name = f"throughline_test_{secrets.token_hex(6)}"
        await run_statement(self._server_url, f"create database {name} template {self._template} strategy file_copy")
        url = with_database(self._server_url, name)
        async with connected(url, lock_timeout=LOCK_TIMEOUT) as connection:
            assert await connection.fetchval("show track_counts") == "on", "the tests need track_counts = on"
            self._fingerprints[url] = await connection.fetchval(FINGERPRINT)
            self._inserted[url] = dict(await connection.fetch(INSERTED))
        return url

    async def give_back(self, url: str) -> None:
        """Empty a database that was taken; drop it where a test changed more than rows or somebody is still in it."""
        try:
            is_empty = await self._empty(url)
        except asyncpg.PostgresError:  # it is gone, or refuses changes
            is_empty = False
        if is_empty:
            self._idle.append(url)
        else:
            await self._drop(url)

    async def close(self) -> None:
        """Drop the databases that nobody uses, and see that they were empty indeed."""
        left = {}
        while self._idle:
            url = self._idle.pop()
            async with connected(url, lock_timeout=LOCK_TIMEOUT) as connection:
                left.update(await _sizes_of_filled(connection, self._inserted[url]))
            await self._drop(url)
        assert left.keys() <= {"alembic_version"}, f"a test left rows for the next: {left}"

    async def _empty(self, url: str) -> bool:
        async with connected(url, lock_timeout=LOCK_TIMEOUT) as connection:
            found = await connection.fetchrow(f"select {IS_ALONE}, ({FINGERPRINT})")
            if tuple(found) != (True, self._fingerprints[url]):
                return False
            inserted = dict(await connection.fetch(INSERTED))
            used = [name for name, rows in self._inserted[url].items() if inserted[name] != rows and name != VERSION]
            sizes = await _sizes_of_filled(connection, used)
            if any(size > MOST_BYTES for size in sizes.values()):
                return False
            await _delete_rows(connection, sizes)
        self._inserted[url] = inserted
        return True

    async def _drop(self, url: str) -> None:
        del self._fingerprints[url], self._inserted[url]
        await drop(self._server_url, str(make_url(url).database))


async def _sizes_of_filled(connection: asyncpg.Connection, tables: Iterable[str]) -> dict[str, int]:
    """Return the tables that hold rows, with the bytes that they take."""
    looks = [f"select '{name}', pg_table_size('{name}') where exists (select from {name})" for name in tables]
    return dict(await connection.fetch(" union all ".join(looks))) if looks else {}


async def _delete_rows(connection: asyncpg.Connection, tables: Iterable[str]) -> None:
    """Delete all rows in one statement, at whose end foreign keys are checked, and reset the sequences."""
    async with connection.transaction():
        await connection.execute("set local throughline.erasure = 'on'")  # messages are append-only otherwise
        deletes = ", ".join(f"d{number} as (delete from {name})" for number, name in enumerate(tables))
        await connection.execute(f"with {deletes} {RESTARTS}" if deletes else RESTARTS)


def with_database(url: str, name: str) -> str:
    """Return the address of another database of the same server."""
    return make_url(url).set(database=name).render_as_string(hide_password=False)


async def drop(url: str, name: str) -> None:
    """Drop a database. For 5 s it is tried again, as our role cannot force out an autovacuum worker; then it stays."""
    for _ in range(DROP_TRIES):
        try:
            return await run_statement(url, f"drop database if exists {name} with (force)")
        except (asyncpg.InsufficientPrivilegeError, asyncpg.ObjectInUseError):
            await asyncio.sleep(0.2)
    return None


async def run_statement(url: str, statement: str) -> None:
    """Run what may not be inside a transaction."""
    async with connected(url) as connection:
        await connection.execute(statement)


T = TypeVar("T")
SETTINGS = """
fsync = off
full_page_writes = off
max_wal_size = 256MB
autovacuum = off
max_connections = 400
"""


@contextmanager
def shared_server() -> Generator[str]:
    """Yield the address of the server of this run; its role may create databases."""
    config = EmbeddedConfig(data_dir=run_folder(), may_create_databases=True)

    def prepare() -> str:
        in_its_own_loop(lambda: _prepare(config))
        return ""

    with shared("server", prepare):
        server = in_its_own_loop(lambda: EmbeddedServer.start(config))
        try:
            yield server.url
        finally:
            in_its_own_loop(server.stop)


@contextmanager
def migrated_template(server_url: str) -> Generator[str]:
    """Yield the name of a migrated database of the server, which nobody connects to."""
    with shared(
        "template",
        lambda: in_its_own_loop(lambda: new_migrated_database(server_url, "throughline_template")),
        lambda name: in_its_own_loop(lambda: drop(server_url, name)),
    ) as name:
        yield name


async def new_migrated_database(server_url: str, kind: str) -> str:
    """Make a database with our schema; return its name, which begins with its kind."""
    name = f"{kind}_{secrets.token_hex(6)}"
    await run_statement(server_url, f"create database {name}")
    await upgrade(with_database(server_url, name))
    return name


def in_its_own_loop(start: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run a coroutine to its end where no loop runs."""
    with asyncio.Runner() as runner:
        return runner.run(start())


async def _prepare(config: EmbeddedConfig) -> None:
    """Make a server that does not wait for the disk, as it never outlives the tests, and knows many by one password.

    The password is hashed once instead of 4,096 times, as each of thousands of connections does.
    """
    server = await EmbeddedServer.start(config)
    url = server.url
    password = make_url(url).password
    await run_statement(url, f"set scram_iterations = 1; alter role current_user password '{password}'")
    with (run_folder() / CLUSTER / "postgresql.auto.conf").open("a") as settings:
        settings.write(SETTINGS)
    await server.stop()


async def copy_data_dir(data_dir: Path) -> None:
    """Make the folder, which is not there yet."""
    await asyncio.to_thread(_copy_to, data_dir)


def _copy_to(data_dir: Path) -> None:
    """Copy with the owners, as root's server runs as somebody else."""
    subprocess.run(["cp", "-Rp", _made(), data_dir], check=True)


@cache
def _made() -> str:
    """Return the folder to copy, one for all processes of a run, which the first to ask makes."""
    return until_exit(shared("embedded", lambda: in_its_own_loop(_make)))


async def _make() -> str:
    data_dir = run_folder() / "embedded-data"
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir))
    await upgrade(server.url)
    await server.stop()
    return str(data_dir)
