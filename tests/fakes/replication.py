"""A primary PostgreSQL and its streaming standby, from the embedded server's binaries, for tests of a fail-over."""

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

import asyncpg  # type: ignore[import-untyped]  # ships no types
import psutil

from fakes.run_folder import memory_folder
from fakes.service_process import free_port
from fakes.slow_wire import SlowWire, slow_wire
from fakes.waiting import HANG_SECONDS
from throughline.postgres_server.installation import Installation, prepare_installation
from throughline.postgres_server.layout import Layout

ROLE, DATABASE = "throughline", "throughline"
STANDBY = "standby"
"""The name by which the primary knows its standby."""

_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
wal_level = replica
wal_keep_size = 256MB
shared_buffers = 64MB
"""
_ACCESS = """
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust
"""


@dataclass(slots=True)
class Server:
    """One PostgreSQL server on the loopback; everybody there is let in as a superuser."""

    installation: Installation
    port: int
    _process: Popen[bytes] | None = field(default=None)

    @property
    def place(self) -> str:
        """Host and port, as in a URL."""
        return f"127.0.0.1:{self.port}"

    @property
    def cluster(self) -> Path:
        """The data directory."""
        return self.installation.layout.cluster

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs to its end."""
        path = str(self.installation.binaries.folder / "bin" / program)
        result = self.installation.account.run([path, *arguments], folder=self.installation.layout.home)
        assert result.returncode == 0, f"{program}: {result.stderr}"

    async def start(self) -> None:
        """Start the server; returns once it answers queries."""
        arguments = [self.installation.binaries.postgres, "-D", str(self.cluster), "-p", str(self.port)]
        with self.installation.layout.log_file.open("ab") as log:
            self._process = self.installation.account.spawn(arguments, folder=self.cluster, log=log)
        async with asyncio.timeout(HANG_SECONDS):
            while not await self._answers():
                assert self._process.poll() is None, self.installation.layout.log_file.read_text()
                await asyncio.sleep(0.02)

    async def _answers(self) -> bool:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await self.ask("select 1")
            return True
        return False

    async def ask(self, statement: str, *, database: str = "postgres") -> object:
        """Run a statement outside any transaction; return its first value."""
        connection = await asyncpg.connect(
            host="127.0.0.1", port=self.port, user=ROLE, database=database, ssl="disable", timeout=HANG_SECONDS
        )
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    async def restart(self) -> None:
        """Stop the server as for an upgrade, and start it again."""
        assert self._process is not None
        await asyncio.to_thread(self.run, "pg_ctl", "-D", str(self.cluster), "-m", "fast", "-w", "stop")
        self._process.wait()
        await self.start()

    def kill(self) -> None:
        """Kill all of its processes at once; does nothing for a server that does not run."""
        if self._process is None:
            return
        for process in self._suspended():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Let all of its processes stand still."""
        self._suspended()

    def resume(self) -> None:
        """Let all of its processes go on."""
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        for process in (*server.children(recursive=True), server):
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def _suspended(self) -> list[psutil.Process]:
        """Return all of its processes, the first one first, each standing still."""
        assert self._process is not None
        try:
            server = psutil.Process(self._process.pid)
            server.suspend()
            processes = [server, *server.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        for process in processes[1:]:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        return processes


@dataclass(frozen=True, slots=True)
class Replication:
    """A primary whose commits wait for its standby."""

    primary: Server
    standby: Server
    database: str
    wire: SlowWire

    def kill_primary(self) -> None:
        """Kill the primary with what it has under way to the standby."""
        self.wire.cut()
        self.primary.kill()

    def make_folder(self, name: str) -> Path:
        """Make a folder that is removed with both servers."""
        folder = self.primary.installation.layout.home.parent / name
        folder.mkdir()
        return folder

    @property
    def url(self) -> str:
        """The address that names both servers and wants the one that takes writes."""
        hosts = f"{self.primary.place},{self.standby.place}"
        return f"postgresql://{ROLE}@{hosts}/{self.database}?sslmode=disable&target_session_attrs=read-write"

    def url_of(self, server: Server) -> str:
        """The address of one of them."""
        return f"postgresql://{ROLE}@{server.place}/{self.database}?sslmode=disable"

    async def wait_for_standby(self, *, synchronous: bool) -> None:
        """Make commits wait for the standby or not; returns once it has all that the primary wrote."""
        names = STANDBY if synchronous else ""
        await self.primary.ask(f"alter system set synchronous_standby_names = '{names}'")
        await self.primary.ask("select pg_reload_conf()")
        wanted = "sync" if synchronous else "async"
        caught_up = "select sync_state = '{}' and replay_lsn = pg_current_wal_lsn() from pg_stat_replication"
        async with asyncio.timeout(HANG_SECONDS):
            while not await self.primary.ask(caught_up.format(wanted)):
                await asyncio.sleep(0.05)

    async def promote(self) -> float:
        """Make the standby the primary; return how many seconds that took."""
        began = time.monotonic()
        assert await self.standby.ask("select pg_promote()")
        return time.monotonic() - began


@asynccontextmanager
async def replicating(*, lag_seconds: float = 0.0) -> AsyncGenerator[Replication]:
    """Run a primary with an empty database and its synchronous standby; both are killed at the end.

    The standby gets all `lag_seconds` late.
    """
    with tempfile.TemporaryDirectory(prefix="tlr-", dir=memory_folder(), ignore_cleanup_errors=True) as name:
        primary, standby = _make_server(Path(name, "primary")), _make_server(Path(name, "standby"))
        try:
            await _start_primary(primary)
            await primary.ask(f"create database {DATABASE} encoding 'UTF8' template template0")
            await primary.ask("create extension vector", database=DATABASE)
            async with slow_wire(primary.port, lag_seconds) as wire:
                await _start_standby(primary, standby, wire.port)
                servers = Replication(primary, standby, DATABASE, wire)
                await servers.wait_for_standby(synchronous=True)
                yield servers
        finally:
            primary.kill()
            standby.kill()


def _make_server(home: Path) -> Server:
    home.parent.chmod(0o711)
    home.mkdir(mode=0o755)
    installation = prepare_installation(Layout(home))
    installation.account.own(home)
    return Server(installation, free_port())


async def _start_primary(server: Server) -> None:
    server.run(
        "initdb",
        f"--pgdata={server.cluster}",
        f"--username={ROLE}",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--no-instructions",
    )
    with (server.cluster / "postgresql.conf").open("a") as settings:
        settings.write(_SETTINGS)
    (server.cluster / "pg_hba.conf").write_text(_ACCESS)
    await server.start()


async def _start_standby(primary: Server, standby: Server, wire_port: int) -> None:
    address = f"host=127.0.0.1 user={ROLE} sslmode=disable port="
    arguments = ("--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf")
    await asyncio.to_thread(
        standby.run, "pg_basebackup", f"--dbname={address}{primary.port}", f"--pgdata={standby.cluster}", *arguments
    )
    with (standby.cluster / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"primary_conninfo = '{address}{wire_port} application_name={STANDBY}'\n")
    await standby.start()
