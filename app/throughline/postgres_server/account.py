"""The operating system account that runs the server, and running programs as that account.

PostgreSQL refuses to run as root. A service run by root therefore starts it as the owner of the data, or as an ordinary
account. Other users start it under their own account.
"""

import os
import pwd
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO

from throughline.domain.errors import DatabaseUnusable

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
