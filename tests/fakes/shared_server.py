"""The PostgreSQL server of a test run and its migrated database to copy from: one of each for all processes."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import make_url

from fakes.database_pool import drop, run_statement, with_database
from fakes.run_folder import CLUSTER, run_folder, shared
from throughline.db.connection.migrations import upgrade
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

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
