"""Dependencies of the command line, provided by `main.py`, and the values that they take and return."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from throughline.domain.keys import CreatedKey, ErasedUser, NewKey, StoredKey
from throughline.domain.model_window import ModelCheck
from throughline.domain.service_status import ServiceStatus


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """Location of the data on this machine; None leaves it to the settings.

    `takes_turns`: the command sends messages, so its process must answer them.
    """

    data_dir: Path | None = None
    takes_turns: bool = False


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of `throughline serve`; None leaves a value to the settings."""

    host: str | None = None
    port: int | None = None
    data_dir: Path | None = None
    no_worker: bool = False


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of `throughline worker`; None leaves a value to the settings."""

    concurrency: int | None = None
    data_dir: Path | None = None
    health_port: int | None = None


@dataclass(frozen=True, slots=True)
class SlackOptions:
    """Options of `throughline slack`; None leaves a value to the settings."""

    data_dir: Path | None = None
    no_worker: bool = False
    health_port: int | None = None


@dataclass(frozen=True, slots=True)
class SlackUnlink:
    """Whose link ends: all Slack users linked to `user`, or the one `slack_user`, of `team` if that is given."""

    user: str = ""
    slack_user: str = ""
    team: str = ""


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """Schema revision of the database (None: empty) and the revision that this version needs."""

    current: str | None
    head: str
    is_current: bool


class KeyAdmin(Protocol):
    """Administration of API keys directly in the database."""

    async def create(self, new: NewKey) -> CreatedKey:
        """Create a key for a user, and the user as well if new."""

    async def list(self) -> Sequence[StoredKey]:
        """Return all keys, revoked ones included, oldest first."""

    async def revoke(self, prefix_or_id: str) -> bool:
        """Revoke a key. Return False if there is no such key in force."""


class LineReader(Protocol):
    """Source of input lines. `is_terminal` is true if a person types them."""

    is_terminal: bool

    async def read(self, question: str = "", text: str = "") -> str | None:
        """Return the next line, None at the end. Raises KeyboardInterrupt for Ctrl-C at the prompt.

        With a `question` the line is the answer to it: it is no part of the history. It begins as `text`, to be edited.
        """


@dataclass(frozen=True, slots=True)
class CliDependencies:
    """Dependencies of the commands.

    - `open_local_service` serves the REST application in this process over a unix socket while the context is open.
      It yields the socket's path, and must not install signal handlers.
    - `slack_manifest` takes the app's name and its URL ('' for Socket Mode).
    - `erase_user` and `slack_link_code` take the name of a user.
    - `slack_unlink` returns the unlinked Slack users as TEAM:USER.
    - `check_model` takes the name of an agent and calls its model.
    - `standard_input_lines` returns the reader for a chat.
    """

    serve: Callable[[ServeOptions], None]
    worker: Callable[[WorkerOptions], None]
    slack: Callable[[SlackOptions], None]
    slack_manifest: Callable[[str, str], str]
    slack_link_code: Callable[[LocalOptions, str], Awaitable[str]]
    erase_user: Callable[[LocalOptions, str], Awaitable[ErasedUser]]
    slack_unlink: Callable[[LocalOptions, SlackUnlink], Awaitable[Sequence[str]]]
    open_local_service: Callable[[LocalOptions], AbstractAsyncContextManager[Path]]
    standard_input_lines: Callable[[], LineReader]
    keys: Callable[[LocalOptions], AbstractAsyncContextManager[KeyAdmin]]
    upgrade_database: Callable[[LocalOptions], Awaitable[None]]
    database_status: Callable[[LocalOptions], Awaitable[DatabaseStatus]]
    database_address: Callable[[LocalOptions], Awaitable[str]]
    check_model: Callable[[str], Awaitable[ModelCheck]]
    service_status: Callable[[LocalOptions], Awaitable[ServiceStatus]]
