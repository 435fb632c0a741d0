"""Database fixtures: one server per test process, one migrated template, databases emptied between tests."""

import asyncio
import gc
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import make_url

from app.assembly.collector import tune_collector
from app.db.connection.address import parse_address
from app.db.connection.migrations import upgrade
from app.db.database import Database, DatabaseConfig
from app.postgres_server import EmbeddedConfig, EmbeddedServer
from fakes.database_pool import DatabasePool, drop, run_statement, with_database
from fakes.memory_folder import memory_folder
from fakes.pooler import all_behind_a_pooler, urls_of

pytest_plugins = [
    "fakes.certificates",
    "fakes.provider_double.fixtures",
    "fakes.anthropic_double.fixtures",
    "fakes.slack_double.fixtures",
]
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25)
settings.register_profile("proof", settings.get_profile("default"), max_examples=100)
settings.load_profile("default")
# A first draw that waits for a busy machine says nothing of what is drawn.

gc.disable()  # until all tests are imported: nothing of it becomes garbage, and each pass walks all that is there

T = TypeVar("T")
IS_POOLED = bool(os.environ.get("TEST_POOLER"))
GUARD = """
import os, shutil, signal, sys
sys.stdin.read()
os.kill(int(sys.argv[1]), signal.SIGQUIT)
shutil.rmtree(sys.argv[2], ignore_errors=True)
"""
POSTGRES_FIXTURE = "server_url"
PROCESS_ROOMS = {"chaos", "replay", "runs", "service"}
"""Folders whose tests start programs of their own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs more than this process, so that `make quick` can leave it out, and what no pooler lets pass."""
    for item in items:
        unpooled = item.get_closest_marker("unpooled")
        if unpooled is not None and IS_POOLED:
            item.add_marker(pytest.mark.skip(reason=f"behind a pooler: {unpooled.args[0]}"))
        if POSTGRES_FIXTURE in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")
        if item.path.parent.name in PROCESS_ROOMS:
            item.add_marker("process")


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what the tests and all that they import made: programs do the same."""
    tune_collector()
    gc.enable()


@pytest.fixture(scope="session")
def server_url(own_server_url: str) -> Generator[str]:
    """An address whose role may create databases; with TEST_POOLER the service reaches them through PgBouncer."""
    with all_behind_a_pooler(own_server_url) if IS_POOLED else nullcontext():
        yield own_server_url


@pytest.fixture(scope="session")
def own_server_url() -> Generator[str]:
    """The server of `server_url`: that of TEST_DATABASE_URL, else an embedded one of our own."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="throughline-tests-", dir=memory_folder()) as folder:
        Path(folder).chmod(0o711)
        config = EmbeddedConfig(data_dir=Path(folder, "data"), may_create_databases=True)
        server = _in_its_own_loop(lambda: EmbeddedServer.start(config))
        cluster = Path(folder, "data", "postgres", "cluster")
        _spare_the_disk(cluster)
        _in_its_own_loop(lambda: run_statement(server.url, _quick_login(server.url)))
        try:
            with _ended_with_this_process(_postmaster(cluster), folder):
                yield server.url
        finally:
            _in_its_own_loop(server.stop)


@pytest.fixture(scope="session")
def pgvector(server_url: str) -> None:
    """Skips what needs pgvector where the server does not have it."""

    async def look() -> bool:
        connection = await asyncpg.connect(**parse_address(server_url).arguments())
        try:
            return bool(await connection.fetchval("select count(*) from pg_available_extensions where name = 'vector'"))
        finally:
            await connection.close()

    if not _in_its_own_loop(look):
        pytest.skip("the server of TEST_DATABASE_URL has no pgvector")


@pytest.fixture(scope="session")
def template_name(server_url: str) -> Generator[str]:
    """A migrated database to copy from. Each test process has its own."""
    name = f"throughline_template_{secrets.token_hex(6)}"

    async def make() -> None:
        await run_statement(server_url, f"create database {name}")
        await upgrade(with_database(server_url, name))

    _in_its_own_loop(make)
    yield name
    _in_its_own_loop(lambda: drop(server_url, name))


@pytest.fixture
async def empty_database_url(server_url: str) -> AsyncGenerator[str]:
    """The address of a database without any schema."""
    name = f"throughline_empty_{secrets.token_hex(6)}"
    await run_statement(server_url, f"create database {name}")
    yield with_database(server_url, name)
    await drop(server_url, name)


@pytest.fixture(scope="session")
def database_pool(server_url: str, template_name: str) -> Generator[DatabasePool]:
    """Migrated databases, for one test after the other."""
    pool = DatabasePool(server_url, template_name)
    yield pool
    _in_its_own_loop(pool.close)


@pytest.fixture
async def database_url(database_pool: DatabasePool) -> AsyncGenerator[str]:
    """The address of a migrated database without rows that only this test uses."""
    url = await database_pool.take()
    yield url
    await database_pool.give_back(url)


@pytest.fixture
async def database(database_url: str) -> AsyncGenerator[Database]:
    """An open database that only this test uses."""
    opened = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=5))
    yield opened
    await opened.close()


def _spare_the_disk(cluster: Path) -> None:
    """Have the tests' server not wait for the disk: it never outlives them. Tests that kill a server have their own."""
    with (cluster / "postgresql.auto.conf").open("a") as settings:
        settings.write("fsync = off\nfull_page_writes = off\nmax_wal_size = 256MB\nautovacuum = off\n")
    os.kill(_postmaster(cluster), signal.SIGHUP)


def _quick_login(url: str) -> str:
    """Hash the password once instead of 4,096 times, as each of thousands of connections does."""
    return f"set scram_iterations = 1; alter role current_user password '{make_url(url).password}'"


def _postmaster(cluster: Path) -> int:
    return int((cluster / "postmaster.pid").read_text().splitlines()[0])


@contextmanager
def _ended_with_this_process(pid: int, folder: str) -> Generator[None]:
    """Have the server end also where this process is killed: another one waits for the end of its standard input."""
    command = [sys.executable, "-c", GUARD, str(pid), folder]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        guard.kill()
        guard.communicate()


def _in_its_own_loop(start: Callable[[], Coroutine[object, object, T]]) -> T:
    with asyncio.Runner() as runner:
        return runner.run(start())
