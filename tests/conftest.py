"""Fixtures of databases, emptied between tests; marks by folder; profiles of Hypothesis; the garbage collector."""

import gc
import os
import secrets
from collections.abc import AsyncGenerator, Generator
from contextlib import nullcontext

import pytest
from hypothesis import HealthCheck, settings

from fakes.conversations import Conversation, open_conversation
from fakes.injected_conflicts import inject_if_asked, is_asked
from fakes.pooler import all_behind_a_pooler, all_polling, urls_of
from fakes.raw_sql import run_sql
from fakes.run_folder import run_folder
from fakes.service_process import RunScript, interpret_script, kill_programs_using, run_script
from fakes.shared_server import (
    DatabasePool,
    drop,
    in_its_own_loop,
    migrated_template,
    run_statement,
    shared_server,
    with_database,
)
from throughline.assembly.front_ends import storages
from throughline.assembly.serving import tune_collector
from throughline.db.connection.address import parse_address
from throughline.db.database import Database, DatabaseConfig

pytest_plugins = ["fakes.fixtures"]
# A first draw that is too slow says something of a busy machine and nothing of the strategy.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25)
settings.register_profile("many-examples", settings.get_profile("default"), max_examples=100)
settings.load_profile("default")

gc.disable()  # until all tests are imported: imports make no garbage, and a collection would walk all live objects

IS_POOLED = bool(os.environ.get("TEST_POOLER"))
IS_POLLING = bool(os.environ.get("TEST_POLLING"))
POSTGRES_FIXTURE = "server_url"
PROCESS_FOLDERS = {"runs", "service"}
"""Folders whose tests are marked as starting programs; tests elsewhere that do so mark themselves."""

PROVIDER_FOLDER = "llm"
"""The folder whose tests import the packages of providers, which takes each process that does it seconds."""


def pytest_configure() -> None:
    """Make the folder that all processes of this run share; with TEST_CONFLICTS, let statements fail."""
    run_folder()
    inject_if_asked()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs more than this process, so that `make quick` can leave it out, and what no pooler lets pass.

    What one process should do for all stands together: each of them is handed a part of the list.
    """
    for item in items:
        unpooled = item.get_closest_marker("unpooled")
        if unpooled is not None and IS_POOLED:
            item.add_marker(pytest.mark.skip(reason=f"behind a pooler: {unpooled.args[0]}"))
        listening = item.get_closest_marker("listening")
        if listening is not None and IS_POLLING:
            item.add_marker(pytest.mark.skip(reason=f"polling alone: {listening.args[0]}"))
        calm = item.get_closest_marker("calm")
        if calm is not None and is_asked():
            item.add_marker(pytest.mark.skip(reason=f"with conflicts: {calm.args[0]}"))
        if POSTGRES_FIXTURE in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")
        if item.path.parent.name in PROCESS_FOLDERS:
            item.add_marker("process")
    items.sort(key=lambda item: item.path.parent.name != PROVIDER_FOLDER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Freeze what the tests and all that they import made, as programs do, and collect garbage again.

    This hook also runs in xdist's controller, which has no tests itself.
    """
    tune_collector()
    gc.enable()


@pytest.fixture(scope="session")
def server_url(direct_server_url: str) -> Generator[str]:
    """The address of `direct_server_url`.

    With TEST_POOLER the service reaches its databases through PgBouncer, with TEST_POLLING it neither listens nor
    notifies.
    """
    with (
        all_behind_a_pooler(direct_server_url) if IS_POOLED else nullcontext(),
        all_polling(direct_server_url) if IS_POLLING else nullcontext(),
    ):
        yield direct_server_url


@pytest.fixture(scope="session")
def direct_server_url() -> Generator[str]:
    """An address whose role may create databases: TEST_DATABASE_URL, else that of this run's embedded server."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield given
        return
    with shared_server() as url:
        yield url


@pytest.fixture(params=[run_script, pytest.param(interpret_script, marks=pytest.mark.proof)])
def run_alone(request: pytest.FixtureRequest) -> RunScript:
    """Runs a script: forked from what has everything imported, and as a proof where nothing is."""
    chosen: RunScript = request.param
    return chosen


@pytest.fixture(scope="session")
def pgvector(server_url: str) -> None:
    """Skips what needs pgvector where the server does not have it."""

    async def look() -> bool:
        return bool(await run_sql(server_url, "select from pg_available_extensions where name = 'vector'"))

    if not in_its_own_loop(look):
        pytest.skip("the server of TEST_DATABASE_URL has no pgvector")


@pytest.fixture(scope="session")
def template_name(server_url: str) -> Generator[str]:
    """A migrated database to copy from."""
    with migrated_template(server_url) as name:
        yield name


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
    in_its_own_loop(pool.close)


@pytest.fixture
async def database_url(database_pool: DatabasePool) -> AsyncGenerator[str]:
    """The address of a migrated database without rows that only this test uses."""
    url = await database_pool.take()
    yield url
    await kill_programs_using(str(parse_address(url).url.database))
    await database_pool.give_back(url)


@pytest.fixture
async def database(database_url: str) -> AsyncGenerator[Database]:
    """An open database that only this test uses."""
    opened = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=5, front_ends=storages()))
    yield opened
    await opened.close()


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    """A session of a user, in a database that only this test uses."""
    return await open_conversation(database)
