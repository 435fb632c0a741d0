"""The cluster, PostgreSQL's data directory: its creation, version check and settings.

Everything that needs the superuser is done during creation, in single-user mode. Afterwards nobody can log in as
superuser, and the service's role owns only its database.
"""

import os
import shutil
from pathlib import Path

from throughline.domain.errors import DatabaseUnusable
from throughline.postgres_server.installation import Installation
from throughline.postgres_server.layout import write_privately
from throughline.postgres_server.process import end_orphans, shorten, wait_until

ROLE = "throughline"
DATABASE = "throughline"
_SETTINGS_FILE = "throughline.conf"
_SETTINGS = Path(__file__).with_name(_SETTINGS_FILE).read_text(encoding="utf-8")
"""The settings. SQL errors are reported by the application: their text may contain values, so the server logs none."""

_ACCESS = f"""\
# The superuser has no way in; see the module that makes this file.
local {DATABASE} {ROLE} scram-sha-256
local all {ROLE} scram-sha-256
local all all reject
"""


def make_cluster_if_missing(installation: Installation, *, password: str, may_create_databases: bool) -> None:
    """Create the cluster with its role, database and vector extension if it is missing; the creation is atomic.

    Raises:
        DatabaseUnusable: the cluster cannot be created; the text contains the failed program's output.
    """
    layout, account = installation.layout, installation.account
    if layout.cluster.exists():
        return
    fresh = layout.unfinished_cluster
    if fresh.exists():
        end_orphans(fresh, mark=layout.mark)
        _remove(fresh)
    fresh.mkdir(mode=0o700)
    account.own(fresh)
    _run_initdb(installation, fresh)
    write_settings(fresh, mark=layout.mark, socket_dir=layout.home)
    createdb = "CREATEDB" if may_create_databases else "NOCREATEDB"
    _run_as_superuser(
        installation,
        fresh,
        [
            "CREATE EXTENSION vector",
            f"CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOCREATEROLE {createdb} PASSWORD '{password}'",
            f"CREATE DATABASE {DATABASE} OWNER {ROLE}",
        ],
    )
    fresh.rename(layout.cluster)
    _make_durable(layout.home)


def check_version(installation: Installation) -> None:
    """Check that the cluster was written by the PostgreSQL version of the programs.

    Raises:
        DatabaseUnusable: another version wrote the cluster, or there is no cluster at all.
    """
    cluster, wanted = installation.layout.cluster, installation.binaries.major_version
    try:
        found = (cluster / "PG_VERSION").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise DatabaseUnusable(
            f"{cluster} holds no PostgreSQL data (PG_VERSION is missing): restore it from a backup, move the folder "
            "away to start with an empty database, or choose another place with --data-dir or DATA_DIR."
        ) from None
    if found != wanted:
        raise DatabaseUnusable(
            f"The data in {cluster} were written by PostgreSQL {found}, this release brings {wanted}: dump them with "
            "the release that wrote them and load them into a new data directory, or use that release."
        )


def set_password(installation: Installation, password: str) -> None:
    """Set the password of the service's role; the server must not be running."""
    _run_as_superuser(installation, installation.layout.cluster, [f"ALTER ROLE {ROLE} PASSWORD '{password}'"])


def write_settings(cluster: Path, *, mark: str, socket_dir: Path) -> None:
    """Write the server's settings and access rules, replacing those of older releases."""
    settings = _SETTINGS.format(mark=mark, socket_dir=str(socket_dir).replace("'", "''"))
    files = {_SETTINGS_FILE: settings, "pg_hba.conf": _ACCESS}
    for name, text in files.items():
        write_privately(cluster / name, text, model=cluster)
    main = cluster / "postgresql.conf"
    include = f"include '{_SETTINGS_FILE}'\n"
    text = main.read_text(encoding="utf-8")
    if not text.endswith(include):
        write_privately(main, text + include, model=cluster)


def _remove(folder: Path) -> None:
    """Remove the folder of an interrupted start, retrying while an unfinished program may still write to it."""

    def is_removed() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    if not wait_until(is_removed, seconds=10.0):
        raise DatabaseUnusable(f"{folder}, left by an interrupted start, cannot be removed: remove it and start again.")


def _run_initdb(installation: Installation, folder: Path) -> None:
    """Create an empty cluster, with the C.UTF-8 ctype if the system has that locale, for full text search."""
    arguments = [
        installation.binaries.initdb,
        f"--pgdata={installation.name_for_server(folder)}",
        "--username=postgres",
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--auth=reject",
        "--no-instructions",
    ]
    result = installation.account.run([*arguments, "--lc-ctype=C.UTF-8"], folder=folder)
    if result.returncode != 0:
        result = installation.account.run(arguments, folder=folder)
    if result.returncode != 0:
        raise _cannot_make(folder, result.stderr)


def _run_as_superuser(installation: Installation, cluster: Path, statements: list[str]) -> None:
    """Run SQL statements in single-user mode in template1, so that databases created later inherit the results."""
    arguments = [
        installation.binaries.postgres,
        "--single",
        "-D",
        installation.name_for_server(cluster),
        "-c",
        "exit_on_error=true",
        "template1",
    ]
    result = installation.account.run(arguments, folder=cluster, script="".join(f"{line}\n" for line in statements))
    if result.returncode != 0:
        raise _cannot_make(cluster, result.stderr)


def _cannot_make(cluster: Path, output: str) -> DatabaseUnusable:
    return DatabaseUnusable(
        f"The embedded PostgreSQL could not set up its data in {cluster}: {shorten(output)} Disk space and permissions "
        "are the usual reasons: see to them, choose another place with --data-dir or DATA_DIR, or set DATABASE_URL."
    )


def _make_durable(folder: Path) -> None:
    """Sync the folder to disk, so that a power failure cannot undo the cluster's rename."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
