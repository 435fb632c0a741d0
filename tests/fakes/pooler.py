"""A real PgBouncer in transaction mode before a server, and the addresses of a database behind it."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from sqlalchemy import make_url

from fakes.service_process import free_port
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.address import Address, DatabaseUrls, parse_address

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SERVER_CONNECTIONS = 3
"""Fewer than the connections of most processes, so that they have to share."""

_POOLED: dict[str, int] = {}
"""Ports of the PgBouncer that the whole suite runs behind, by the place of the server; filled by conftest.py."""

_POLLING: set[str] = set()
"""Places of servers on which nobody listens, so that the whole suite polls; filled by conftest.py."""

INI = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = {auth_type}
auth_file = {folder}/users.txt
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 1000
max_db_connections = {size}
server_round_robin = 1
server_idle_timeout = 5
server_login_retry = 0.2
{more}
"""


class Where(TypedDict):
    """The addresses as a DatabaseConfig takes them."""

    url: str
    direct_url: str
    listens: bool


@dataclass(frozen=True, slots=True)
class Pooler:
    """A PgBouncer: `port` is on the loopback."""

    port: int
    process: subprocess.Popen[bytes]

    def url(self, direct_url: str) -> str:
        """Return the address by which a database is reached through it."""
        return _through(self.port, direct_url)


def urls_of(direct_url: str) -> Where:
    """Return how the service reaches a database: behind PgBouncer where the suite runs so, else as it is."""
    place = parse_address(direct_url).place
    port, listens = _POOLED.get(place), place not in _POLLING
    if port is None:
        return Where(url=direct_url, direct_url="", listens=listens)
    return Where(url=_through(port, direct_url), direct_url=direct_url, listens=listens)


def environment_of(direct_url: str) -> Mapping[str, str]:
    """Return `urls_of` as a program takes it."""
    urls = urls_of(direct_url)
    listens = {} if urls["listens"] else {"DATABASE_LISTEN": "false"}
    return {"DATABASE_URL": urls["url"], "DATABASE_DIRECT_URL": urls["direct_url"], **listens}


def direct_url(settings: Mapping[str, str]) -> str:
    """Return where PostgreSQL itself is, by a program's `environment_of`."""
    return settings["DATABASE_DIRECT_URL"] or settings["DATABASE_URL"]


def shared_address(direct_url: str) -> Address:
    """Return `urls_of` as a pool takes it."""
    return DatabaseUrls(**urls_of(direct_url)).shared_address()


@contextmanager
def all_behind_a_pooler(server_url: str) -> Generator[None]:
    """Have `urls_of` lead through a PgBouncer inside the block."""
    place = parse_address(server_url).place
    with pooler(server_url) as started:
        _POOLED[place] = started.port
        try:
            yield
        finally:
            del _POOLED[place]


@contextmanager
def all_polling(server_url: str) -> Generator[None]:
    """Have `urls_of` and the environment say inside the block that nobody listens on the server."""
    place = parse_address(server_url).place
    _POLLING.add(place)
    os.environ["DATABASE_LISTEN"] = "false"
    try:
        yield
    finally:
        del os.environ["DATABASE_LISTEN"]
        _POLLING.remove(place)


@contextmanager
def pooler(
    server_url: str, *, mode: str = "transaction", size: int = SERVER_CONNECTIONS, more: str = ""
) -> Generator[Pooler]:
    """Run PgBouncer before the server; `more` are further lines of its settings."""
    assert PROGRAM is not None, "PgBouncer is not installed"
    with tempfile.TemporaryDirectory(prefix="pooler-") as written:
        folder, port = Path(written), free_port()
        folder.chmod(0o755)
        arguments = parse_address(server_url).arguments()
        password = str(arguments.get("password", ""))
        (folder / "users.txt").write_text(f'"{arguments["user"]}" "{password}"\n')
        settings = INI.format(
            host=arguments.get("host", "localhost"),
            port=arguments["port"],
            listen_port=port,
            auth_type="scram-sha-256" if password else "trust",
            folder=folder,
            mode=mode,
            size=size,
            more=more,
        )
        (folder / "pgbouncer.ini").write_text(settings)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [PROGRAM, *_as_whom(), str(folder / "pgbouncer.ini")], stdout=log, stderr=subprocess.STDOUT
            )
        try:
            _wait_until_listening(port, process, folder / "log")
            yield Pooler(port, process)
        finally:
            process.kill()
            process.wait()


def _as_whom() -> tuple[str, ...]:
    """PgBouncer refuses to run as root; it reads its files before it becomes somebody else."""
    return ("-u", pwd.getpwnam("nobody").pw_name) if os.geteuid() == 0 else ()


def _through(port: int, direct_url: str) -> str:
    url = make_url(direct_url).set(host="127.0.0.1", port=port, query={})
    return url.render_as_string(hide_password=False)


def _wait_until_listening(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    give_up_at = time.monotonic() + HANG_SECONDS
    while True:
        assert process.poll() is None, f"PgBouncer ended: {log.read_text()[-1000:]}"
        assert time.monotonic() < give_up_at, "PgBouncer does not listen"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
