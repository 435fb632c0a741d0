"""Where everything of the embedded server lies, and making those places with the right owners.

Ours alone is `<data dir>/postgres`: nothing outside it is ever given another mode or owner. In it: `cluster`,
PostgreSQL's own data; `cluster.new`, a cluster being made, renamed when it is whole; `socket`, where the path is short
enough for one; `binaries`, a copy where the server's account cannot read the installed ones; the locks, the log and the
password.
"""

import hashlib
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from throughline.domain.errors import DatabaseUnusable

ROOT_DATA_DIR = Path("/var/lib/throughline")


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one embedded server; `home` is the only folder we own."""

    home: Path

    @property
    def mark(self) -> str:
        """A name in the titles of this server's processes, for when nothing else of them may be seen."""
        return f"throughline-{hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]}"

    @property
    def cluster(self) -> Path:
        """PostgreSQL's data directory."""
        return self.home / "cluster"

    @property
    def unfinished_cluster(self) -> Path:
        """A cluster on its way; what a killed start leaves here is thrown away."""
        return self.home / "cluster.new"

    @property
    def password_file(self) -> Path:
        """The application role's password, readable by the folder's owner only."""
        return self.home / "password"

    @property
    def log_file(self) -> Path:
        """What the server says: no statements, no row values."""
        return self.home / "server.log"

    @property
    def socket_record(self) -> Path:
        """Names the socket's folder when it is not `home/socket`."""
        return self.home / "socket_dir"

    @property
    def start_lock(self) -> Path:
        """Held exclusively while somebody starts, restarts or stops the server."""
        return self.home / "start.lock"

    @property
    def users_lock(self) -> Path:
        """Held shared by every process that uses the server."""
        return self.home / "users.lock"


def choose_data_dir(wanted: Path | None) -> Path:
    """Return the absolute data directory: the wanted one, or the default of the user who runs us."""
    if wanted is not None:
        return wanted.expanduser().resolve()
    if os.geteuid() == 0:
        return ROOT_DATA_DIR
    return platformdirs.user_data_path("throughline", appauthor=False)


def has_cluster(wanted: Path | None) -> bool:
    """Whether an embedded server was ever made there. Nothing is made; what we may not look into counts as made."""
    try:
        return Layout(choose_data_dir(wanted) / "postgres").cluster.exists()
    except PermissionError:
        return True


def make_data_dir(data_dir: Path) -> None:
    """Make the data directory where it is missing; root's is open for passing through, whatever the umask says."""
    if data_dir.exists():
        return
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    data_dir.chmod(0o711 if os.geteuid() == 0 else 0o700)


def make_home(data_dir: Path) -> Layout:
    """Make the data directory where it is missing, and our folder in it.

    The folder belongs to whom the data directory belongs to. Others may pass through it only if root owns it, because
    root's server runs under another account.

    Raises:
        DatabaseUnusable: somebody else's embedded server lives here.
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
    """Give `path` the owner of `model`; only root can and needs to."""
    if os.geteuid() == 0:
        owner = model.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def write_privately(path: Path, text: str, *, model: Path) -> None:
    """Write `text` to `path` all at once: mode 0600, owned like `model`."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    own_as(fresh, model)
    fresh.replace(path)


def read_or_make_password(layout: Layout) -> str:
    """Return the application role's password, drawn at the first start."""
    if not layout.password_file.exists():
        write_privately(layout.password_file, secrets.token_urlsafe(32), model=layout.home)
    return layout.password_file.read_text(encoding="utf-8").strip()


def is_private_folder(folder: Path, uid: int) -> bool:
    """Tell whether `folder` is a real folder of that user which nobody else may enter."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and stat.S_IMODE(found.st_mode) == 0o700  # noqa: PLR2004 - a mode
