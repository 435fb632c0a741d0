"""Databases that one test after the other uses, emptied in between.

A database is copied from the template (30 ms of the server's time) and deleting a test's rows takes 2 ms; truncating
would take 20, as each table and index gets a new file. What cannot be emptied is dropped.
"""

import asyncio
import secrets

import asyncpg  # type: ignore[import-untyped]  # ships no types
from sqlalchemy import make_url

from app.db.connection.address import parse_address

DROP_TRIES = 25
MOST_BYTES = 4_000_000
"""Deleted rows keep their room (a new one has half a megabyte): a database whose tables take more of it is dropped."""

SCHEMAS = "relnamespace in (select oid from pg_namespace where nspname in ('public', 'throughline_jobs'))"
TABLES = f"select oid::regclass::text from pg_class where relkind = 'r' and {SCHEMAS} order by 1"
BYTES = f"select coalesce(sum(pg_table_size(oid)), 0) from pg_class where relkind = 'r' and {SCHEMAS}"
RESTARTS = "select setval(seqrelid, seqstart, false) from pg_sequence"
CATALOGS = "class attribute attrdef constraint index trigger proc type rewrite sequence extension namespace ts_config"
CHANGES = ", ".join(f"(select max(xmin::text::bigint) || '/' || count(*) from pg_{name})" for name in CATALOGS.split())
FINGERPRINT = f"""
    select concat_ws(' ', {CHANGES},
        (select sum(reltuples) from pg_class), (select string_agg(version_num, ' ') from alembic_version),
        (select count(*) from pg_db_role_setting join pg_database on oid = setdatabase
            where datname = current_database()))
"""
"""Another one where a row of CATALOGS was changed, made or dropped: it holds the number of the last transaction.

What `analyze` counted, the schema's version and settings of the database are in it too. Other catalogs are not
(policies, casts, values of enumerations, comments, large objects), nor are rows, nor what belongs to the server.
"""

IS_ALONE = """
    select not exists (select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid())
"""
"""Whoever else is connected may belong to a program that a test left behind and that would connect again."""

LOCK_SECONDS = 10
"""A lock of somebody who has come since lets a statement fail, and the database be dropped, after so long."""


class DatabasePool:
    """Migrated databases of one test process; nobody else uses what is taken."""

    def __init__(self, server_url: str, template: str) -> None:
        """Copy from the database `template`."""
        self._server_url, self._template = server_url, template
        self._fingerprints: dict[str, str] = {}
        self._idle: list[str] = []

    async def take(self) -> str:
        """Return the address of a database without rows."""
        if self._idle:
            return self._idle.pop()
        name = f"throughline_test_{secrets.token_hex(6)}"
        await run_statement(self._server_url, f"create database {name} template {self._template} strategy file_copy")
        url = with_database(self._server_url, name)
        connection = await asyncpg.connect(**parse_address(url).arguments())
        try:
            self._fingerprints[url] = await connection.fetchval(FINGERPRINT)
        finally:
            await connection.close()
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
        """Drop the databases that nobody uses."""
        while self._idle:
            await self._drop(self._idle.pop())

    async def _empty(self, url: str) -> bool:
        connection = await asyncpg.connect(**parse_address(url).arguments())
        try:
            await connection.execute(f"set lock_timeout = '{LOCK_SECONDS}s'")
            is_alone, size, found = await connection.fetchrow(f"select ({IS_ALONE}), ({BYTES}), ({FINGERPRINT})")
            if not is_alone or size > MOST_BYTES or found != self._fingerprints[url]:
                return False
            await _delete_rows(connection)
        finally:
            await connection.close()
        return True

    async def _drop(self, url: str) -> None:
        del self._fingerprints[url]
        await drop(self._server_url, str(make_url(url).database))


async def _delete_rows(connection: asyncpg.Connection) -> None:
    """Delete all rows in one statement, at whose end the keys between the tables are looked at."""
    tables = [row[0] for row in await connection.fetch(TABLES) if row[0] != "alembic_version"]
    looks = " union all ".join(f"select '{name}' where exists (select from {name})" for name in tables)
    filled = [row[0] for row in await connection.fetch(looks)]
    async with connection.transaction():
        await connection.execute("set local throughline.erasure = 'on'")  # messages are append-only otherwise
        deletes = ", ".join(f"d{number} as (delete from {name})" for number, name in enumerate(filled))
        await connection.execute(f"with {deletes} {RESTARTS}" if filled else RESTARTS)


def with_database(url: str, name: str) -> str:
    """Return the address of another database of the same server."""
    return make_url(url).set(database=name).render_as_string(hide_password=False)


async def drop(url: str, name: str) -> None:
    """Drop a database; an autovacuum worker that is in it cannot be forced out by our role and is waited for."""
    for _ in range(DROP_TRIES):
        try:
            return await run_statement(url, f"drop database if exists {name} with (force)")
        except (asyncpg.InsufficientPrivilegeError, asyncpg.ObjectInUseError):
            await asyncio.sleep(0.2)
    return None


async def run_statement(url: str, statement: str) -> None:
    """Run what may not be inside a transaction."""
    connection = await asyncpg.connect(**parse_address(url).arguments())
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
