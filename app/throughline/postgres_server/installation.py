"""One embedded server as it is set up on this machine: its places, its account, its programs, its socket."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from throughline.domain.errors import DatabaseUnusable
from throughline.postgres_server.account import Account, choose_account
from throughline.postgres_server.binaries import Binaries, provide_binaries
from throughline.postgres_server.layout import Layout, is_private_folder, write_privately

# The shortest limit of the systems we know is 103 bytes, and the server adds "/.s.PGSQL.5432.lock".
_SOCKET_DIR_MAX_BYTES = 80
# What needs quoting neither in a configuration file nor in an address.
_PLAIN_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-")
_SHORT_PLACES = (Path("/run"), Path("/tmp"))  # noqa: S108 - mkdtemp makes a private folder in it


@dataclass(frozen=True, slots=True)
class Installation:
    """What it takes to run the programs. `is_hidden`: the account cannot reach the data by their path."""

    layout: Layout
    account: Account
    binaries: Binaries
    is_hidden: bool

    def name_for_server(self, folder: Path) -> str:
        """Return the name under which the server, started in `folder`, finds it.

        Below a closed folder (root's home, a private temporary folder) the path leads nowhere for the server's
        account, but the folder it stands in is open to it: no mode above needs to change.
        """
        return "/proc/self/cwd" if self.is_hidden else str(folder)


def prepare_installation(layout: Layout) -> Installation:
    """Choose the account, find its programs, and see whether it can reach the data.

    Raises:
        DatabaseUnusable: there is no way to run a server here.
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
    """Return the folder of the socket, made and private to the server's account.

    Socket paths are limited to about 100 bytes: for a longer one, a short private folder is made elsewhere and noted.

    Raises:
        DatabaseUnusable: no such folder can be made.
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
    """Leave nothing outside our folder behind once the server is stopped; the note stays for the next start."""
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
