"""Paths of the embedded server's files, and their creation with the right owners.

Only `<data dir>/postgres` belongs to this service; modes and owners outside it are never changed. It contains:
`cluster`, PostgreSQL's data; `cluster.new`, a cluster being created, renamed when complete; `socket`, if the path is
short enough; `binaries`, a copy if the server's account cannot read the installed ones; locks, log and password.
"""

import hashlib
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from throughline.domain.errors import DatabaseUnusable


@dataclass(frozen=True, slots=True)
class EmbeddedConfig:
    """The data directory and the start timeout of the embedded server.

    `data_dir` None means the user's data directory, for root `/var/lib/throughline`. `start_timeout_seconds` includes
    recovery after a crash. `may_create_databases` applies only when the data directory is first created; test suites
    use it.
    """

    data_dir: Path | None = None
    start_timeout_seconds: float = 60.0
    may_create_databases: bool = False


ROOT_DATA_DIR = Path("/var/lib/throughline")


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one embedded server; `home` is the only folder that the service owns."""

    home: Path

    @property
    def mark(self) -> str:
        """A name in the titles of this server's processes, to recognise them if nothing else is readable."""
        return f"throughline-{hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]}"

    @property
    def cluster(self) -> Path:
        """PostgreSQL's data directory."""
        return self.home / "cluster"

    @property
    def unfinished_cluster(self) -> Path:
        """A cluster being created; what an interrupted start left here is deleted."""
        return self.home / "cluster.new"

    @property
    def password_file(self) -> Path:
        """The application role's password, readable by the folder's owner only."""
        return self.home / "password"

    @property
    def log_file(self) -> Path:
        """The server's log, without statements and row values."""
        return self.home / "server.log"

    @property
    def socket_record(self) -> Path:
        """File with the path of the socket's folder if that is not `home/socket`."""
        return self.home / "socket_dir"

    @property
    def owner_record(self) -> Path:
        """File with the path of the installation that owns the folder, if it is the default one."""
        return self.home / "installation"

    @property
    def start_lock(self) -> Path:
        """Lock file held exclusively by a process that starts, restarts or stops the server."""
        return self.home / "start.lock"

    @property
    def users_lock(self) -> Path:
        """Lock file held shared by every process that uses the server."""
        return self.home / "users.lock"


def choose_data_dir(wanted: Path | None) -> Path:
    """Return the absolute data directory: the wanted one, or the default of the current user."""
    if wanted is not None:
        return wanted.expanduser().resolve()
    if os.geteuid() == 0:
        return ROOT_DATA_DIR
    return platformdirs.user_data_path("throughline", appauthor=False)


def has_cluster(wanted: Path | None) -> bool:
    """Whether the data directory has an embedded cluster. True as well if it cannot be read. Creates nothing."""
    try:
        return Layout(choose_data_dir(wanted) / "postgres").cluster.exists()
    except PermissionError:
        return True


def make_data_dir(data_dir: Path) -> None:
    """Create the data directory if missing. Other users may traverse it only if root creates it, whatever the umask."""
    if data_dir.exists():
        return
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    data_dir.chmod(0o711 if os.geteuid() == 0 else 0o700)


def make_home(data_dir: Path) -> Layout:
    """Create the data directory and the service's folder in it, if they are missing; return the layout.

    The folder gets the owner of the data directory. Other users may traverse it only if root owns it, because root's
    server runs under another account.

    Raises:
        DatabaseUnusable: the folder belongs to another user's embedded server.
    """
    home = data_dir / "postgres"
    make_data_dir(data_dir)
    if not home.exists():
        home.mkdir(mode=0o700, exist_ok=True)
        own_as(home, data_dir)
    owner = home.stat().st_uid
    if os.geteuid() not in {0, owner}:
        raise DatabaseUnusable(
            f"{home} belongs to user id {owner}, this service runs as {os.geteuid()}: run both as the same user, "
            "or choose another data directory with --data-dir or DATA_DIR."
        )
    home.chmod(0o711 if owner == 0 else 0o700)
    return Layout(home)


def own_as(path: Path, model: Path) -> None:
    """Give `path` the owner of `model`; does nothing unless run by root."""
    if os.geteuid() == 0:
        owner = model.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def write_privately(path: Path, text: str, *, model: Path) -> None:
    """Write `text` to `path` atomically, with mode 0600 and the owner of `model`."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    own_as(fresh, model)
    fresh.replace(path)


def read_or_make_password(layout: Layout) -> str:
    """Return the application role's password, generated at the first start."""
    if not layout.password_file.exists():
        write_privately(layout.password_file, secrets.token_urlsafe(32), model=layout.home)
    return layout.password_file.read_text(encoding="utf-8").strip()


def is_private_folder(folder: Path, uid: int) -> bool:
    """Return whether `folder` is a folder, no symbolic link, that belongs to user `uid` and has mode 0700."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and stat.S_IMODE(found.st_mode) == 0o700  # noqa: PLR2004 - a mode
