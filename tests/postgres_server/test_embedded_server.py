"""The embedded server in good weather: start, share, stop, whom it lets in, and which data it refuses."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest
from sqlalchemy import make_url

from fakes.data_dir_template import copy_data_dir
from fakes.memory_folder import memory_folder
from throughline.domain.errors import DatabaseUnusable
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer
from throughline.postgres_server.process import end_server, find_server

pytestmark = pytest.mark.slow


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A folder that is not there: what is made in it is made by a first start."""
    with tempfile.TemporaryDirectory(prefix="tl-", dir=memory_folder()) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder, "data")
        left_over = find_server(Path(folder, "data", "postgres", "cluster"))
        if left_over:
            end_server(left_over, timeout_seconds=10)


@pytest.fixture
async def used_dir(data_dir: Path) -> Path:
    """The same folder with what a first start has made in it; its server was stopped."""
    await copy_data_dir(data_dir)
    return data_dir


@asynccontextmanager
async def started(data_dir: Path) -> AsyncIterator[EmbeddedServer]:
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir))
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def connected(server: EmbeddedServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(
        make_url(server.url).set(drivername="postgresql").render_as_string(hide_password=False)
    )
    try:
        yield connection
    finally:
        await connection.close()


def find_pid(data_dir: Path) -> int | None:
    process = find_server(data_dir / "postgres" / "cluster")
    return process.pid if process else None


async def test_the_role_owns_a_utf8_database_with_vectors_and_is_no_superuser(used_dir: Path) -> None:
    async with started(used_dir) as server, connected(server) as connection:
        row = await connection.fetchrow(
            "SELECT current_user AS role, rolsuper, rolcreatedb, to_tsvector('simple', 'ÄPFEL “naïve”')::text AS words,"
            " '[1,2]'::vector <-> '[1,3]' AS distance, current_setting('server_encoding') AS encoding,"
            " current_setting('listen_addresses') AS tcp, current_setting('timezone') AS zone"
            " FROM pg_roles WHERE rolname = current_user"
        )
        await connection.execute("CREATE TABLE proof (id int PRIMARY KEY)")

    assert row is not None
    assert dict(row) == {
        "role": "throughline",
        "rolsuper": False,
        "rolcreatedb": False,
        "words": "'naïve':2 'äpfel':1",
        "distance": 1.0,
        "encoding": "UTF8",
        "tcp": "",
        "zone": "UTC",
    }


async def test_what_was_stored_is_there_after_stop_and_start(used_dir: Path) -> None:
    async with started(used_dir) as server, connected(server) as connection:
        await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    stopped = find_pid(used_dir) is None

    async with started(used_dir) as server, connected(server) as connection:
        answer = await connection.fetchval("SELECT answer FROM kept")

    assert stopped
    assert answer == 42


async def test_the_last_one_out_stops_the_server(used_dir: Path) -> None:
    first = await EmbeddedServer.start(EmbeddedConfig(used_dir))
    second = await EmbeddedServer.start(EmbeddedConfig(used_dir))
    pid = find_pid(used_dir)

    await first.stop()
    after_first = find_pid(used_dir)
    await second.stop()

    assert pid is not None
    assert after_first == pid
    assert find_pid(used_dir) is None


async def test_concurrent_first_starts_end_up_on_one_server(data_dir: Path) -> None:
    servers = await asyncio.gather(*(EmbeddedServer.start(EmbeddedConfig(data_dir)) for _ in range(4)))
    urls = {server.url for server in servers}
    async with connected(servers[0]) as connection:
        databases = await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname = 'throughline'")
    await asyncio.gather(*(server.stop() for server in servers))

    assert len(urls) == 1
    assert databases == 1
    assert find_pid(data_dir) is None


async def test_a_start_that_is_cancelled_leaves_no_server(data_dir: Path) -> None:
    starting = asyncio.create_task(EmbeddedServer.start(EmbeddedConfig(data_dir)))
    await asyncio.sleep(0)
    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting

    assert find_pid(data_dir) is None


async def test_nobody_gets_in_without_the_password_nor_as_superuser(used_dir: Path) -> None:
    async with started(used_dir) as server:
        folder = str(make_url(server.url).query["host"])
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(host=folder, user="throughline", password="guess", database="throughline")
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
            await asyncpg.connect(host=folder, user="postgres", database="throughline")


async def test_secrets_are_private_and_the_terminals_signals_do_not_reach_the_server(used_dir: Path) -> None:
    async with started(used_dir):
        pid = find_pid(used_dir)
        assert pid is not None
        session = os.getsid(pid)
        home = used_dir / "postgres"
        modes = {name: oct((home / name).stat().st_mode & 0o777) for name in ("password", "server.log", "cluster")}

    assert session == pid
    assert modes == {"password": "0o600", "server.log": "0o600", "cluster": "0o700"}


async def test_the_log_holds_no_statement_and_no_value(used_dir: Path) -> None:
    async with started(used_dir) as server, connected(server) as connection:
        with pytest.raises(asyncpg.DataError):
            await connection.execute("SELECT 'my secret words'::int")

    assert "secret" not in (used_dir / "postgres" / "server.log").read_text()


async def test_a_role_for_test_suites_may_create_databases(data_dir: Path) -> None:
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir, may_create_databases=True))
    async with connected(server) as connection:
        await connection.execute("CREATE DATABASE other")
        databases = await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname = 'other'")
    await server.stop()

    assert databases == 1


async def test_a_lost_password_file_is_made_anew(used_dir: Path) -> None:
    (used_dir / "postgres" / "password").unlink()

    async with started(used_dir) as server, connected(server) as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_data_of_another_version_are_refused_naming_both(used_dir: Path) -> None:
    (used_dir / "postgres" / "cluster" / "PG_VERSION").write_text("16\n")

    with pytest.raises(DatabaseUnusable, match=r"PostgreSQL 16, this release brings 18"):
        await EmbeddedServer.start(EmbeddedConfig(used_dir))


async def test_a_folder_without_data_is_refused_and_kept(data_dir: Path) -> None:
    stranger = data_dir / "postgres" / "cluster" / "letter.txt"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("mine")

    with pytest.raises(DatabaseUnusable, match="PG_VERSION is missing"):
        await EmbeddedServer.start(EmbeddedConfig(data_dir))

    assert stranger.read_text() == "mine"


async def test_a_server_that_cannot_start_is_told_with_its_last_words(used_dir: Path) -> None:
    os.truncate(used_dir / "postgres" / "cluster" / "global" / "pg_control", 0)

    with pytest.raises(DatabaseUnusable, match=r"did not start: .*pg_control"):
        await EmbeddedServer.start(EmbeddedConfig(used_dir))


async def test_a_place_that_cannot_be_a_folder_is_told_with_what_to_do() -> None:
    with pytest.raises(DatabaseUnusable, match=r"--data-dir"):
        await EmbeddedServer.start(EmbeddedConfig(Path(__file__, "data")))
