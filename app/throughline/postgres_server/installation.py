"""An embedded server's installation on this machine: paths, account, programs and socket folder."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from throughline.domain.errors import DatabaseUnusable
from throughline.postgres_server.account import Account, choose_account
from throughline.postgres_server.binaries import Binaries, provide_binaries
from throughline.postgres_server.layout import Layout, is_private_folder, write_privately

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
