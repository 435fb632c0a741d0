"""A test's database that says of itself that it is a standby, with the age that the test wants.

Its own functions stand before PostgreSQL's in the search path, so one server is the primary and the replica.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fakes.raw_sql import connected, run_sql
from throughline.db.connection.address import parse_address

_FUNCTIONS = """
    create schema pretended;
    create table pretended.state (is_standby boolean, is_replaying boolean, age interval);
    insert into pretended.state values (true, true, '2 seconds');
    create function pretended.pg_is_in_recovery() returns boolean language sql
        as 'select is_standby from pretended.state';
    create function pretended.pg_last_wal_replay_lsn() returns pg_lsn language sql
        as $$select case when is_replaying then '0/1'::pg_lsn end from pretended.state$$;
    create function pretended.pg_last_xact_replay_timestamp() returns timestamptz language sql
        as 'select clock_timestamp() - age from pretended.state';
"""


@dataclass(frozen=True, slots=True)
class PretendedStandby:
    """A database that can look like a standby."""

    url: str

    async def set_lag(self, age: str | None) -> None:
        """Have its last replayed commit be so old, in PostgreSQL's words; None: it does not say."""
        await run_sql(self.url, "update pretended.state set age = cast($1::text as interval)", age)

    async def set(self, column: str, *, value: bool) -> None:
        """Set what it says of itself."""
        await run_sql(self.url, f"update pretended.state set {column} = {value}")

    async def remove_functions(self) -> None:
        """Have it refuse to tell, as a server does that is no PostgreSQL."""
        await run_sql(
            self.url,
            """
                create or replace function pretended.pg_is_in_recovery() returns boolean language plpgsql
                    as $$begin raise 'not supported' using errcode = '0A000'; end$$
            """,
        )


@asynccontextmanager
async def pretended_standby(database_url: str) -> AsyncGenerator[PretendedStandby]:
    """Let new connections to the database find a standby, inside the block."""
    name = parse_address(database_url).url.database
    async with connected(database_url) as connection:
        await connection.execute(_FUNCTIONS)
        await connection.execute(f"alter database {name} set search_path = pretended, pg_catalog, public")
        try:
            yield PretendedStandby(database_url)
        finally:
            await connection.execute(f"alter database {name} reset search_path")
            await connection.execute("drop schema pretended cascade")
