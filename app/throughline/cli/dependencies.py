"""What main hands to the command line: callables that start things, and the small values they take and give."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from throughline.domain.keys import CreatedKey, NewKey, StoredKey
from throughline.domain.service_status import ServiceStatus


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """Where the data of this machine lies; None leaves it to the settings.

    `takes_turns`: the command sends messages, so its process has to answer them.
    """

    data_dir: Path | None = None
    takes_turns: bool = False


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve; None leaves a value to the settings."""

    host: str | None = None
    port: int | None = None
    data_dir: Path | None = None
    no_worker: bool = False


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How to run a worker alone; None leaves a value to the settings."""

    concurrency: int | None = None
    data_dir: Path | None = None
    health_port: int | None = None


@dataclass(frozen=True, slots=True)
class SlackOptions:
    """How to take part in Slack over Socket Mode; None leaves a value to the settings."""

    data_dir: Path | None = None
    no_worker: bool = False
    health_port: int | None = None


@dataclass(frozen=True, slots=True)
class SlackUnlink:
    """Whose link to a user ends: all who are the user named, or the one Slack user, of the team if that is named."""

    user: str = ""
    slack_user: str = ""
    team: str = ""


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """Which schema revision the database has (None: empty) and which one this version needs."""

    current: str | None
    head: str
    is_current: bool


class KeyAdmin(Protocol):
    """Creating, listing and revoking API keys, straight in the database."""

    async def create(self, new: NewKey) -> CreatedKey:
        """Create a key for its user, who is created with it if new."""

    async def list(self) -> Sequence[StoredKey]:
        """Return all keys."""

    async def revoke(self, prefix_or_id: str) -> bool:
        """Revoke a key; False where there is none in force."""


class LineReader(Protocol):
    """Where lines come from. `is_terminal` tells whether a person types them."""

    is_terminal: bool

    async def read(self) -> str | None:
        """Return the next line, None at the end. Raises KeyboardInterrupt for Ctrl-C at the prompt."""


@dataclass(frozen=True, slots=True)
class CliDependencies:
    """The parts behind the commands.

    `open_local_service` serves the REST application of this process over a unix socket for as long as the context
    is open, and yields the socket's path. It must leave the signals to the command line. `slack_manifest` takes the
    app's name and the address it is reached at ('': Socket Mode), `slack_link_code` the name of a user;
    `slack_unlink` returns the Slack users it unlinked, as TEAM:USER.
    `standard_input_lines` returns what a chat reads from.
    """

    serve: Callable[[ServeOptions], None]
    worker: Callable[[WorkerOptions], None]
    slack: Callable[[SlackOptions], None]
    slack_manifest: Callable[[str, str], str]
    slack_link_code: Callable[[LocalOptions, str], Awaitable[str]]
    slack_unlink: Callable[[LocalOptions, SlackUnlink], Awaitable[Sequence[str]]]
    open_local_service: Callable[[LocalOptions], AbstractAsyncContextManager[Path]]
    standard_input_lines: Callable[[], LineReader]
    keys: Callable[[LocalOptions], AbstractAsyncContextManager[KeyAdmin]]
    upgrade_database: Callable[[LocalOptions], Awaitable[None]]
    database_status: Callable[[LocalOptions], Awaitable[DatabaseStatus]]
    database_address: Callable[[LocalOptions], Awaitable[str]]
    service_status: Callable[[LocalOptions], Awaitable[ServiceStatus]]
