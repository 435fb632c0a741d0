"""Dependencies of the command line, provided by `main.py`, and the values that they take and return."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from throughline.domain.model_window import ModelCheck
from throughline.domain.service_status import ServiceStatus
from throughline.domain.tool_server import ServedTools, ToolServer
from throughline.ports.stored_threads import StoredThreads

if TYPE_CHECKING:
    from throughline.db.database import Database


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """Location of the data on this machine; None leaves it to the settings.

    `takes_turns`: the command sends messages, so its process must answer them.
    """

    data_dir: Path | None = None
    takes_turns: bool = False


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """What a supervisor hands to a child process: file descriptors, the child's number, and how many children.

    The descriptors are those of the listening socket, of the line to the supervisor, and of the file with the number
    of each process's connections. The first child has number 1.
    """

    listener: int
    line: int
    counts: int
    number: int
    children: int


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of `throughline serve`; None leaves a value to the settings.

    `processes` is a number or `auto`. `child` is set in a child process of a supervisor.
    """

    host: str | None = None
    port: int | None = None
    data_dir: Path | None = None
    no_worker: bool = False
    processes: str | None = None
    child: ChildOptions | None = None


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of `throughline worker`; None leaves a value to the settings."""

    concurrency: int | None = None
    data_dir: Path | None = None
    health_port: int | None = None


@dataclass(frozen=True, slots=True)
class FrontEndOptions:
    """Options of a front end that runs alone, as the package `name`; None leaves a value to the settings."""

    name: str
    data_dir: Path | None = None
    no_worker: bool = False
    health_port: int | None = None


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """Schema revision of the database (None: empty) and the revision that this version needs."""

    current: str | None
    head: str
    is_current: bool


class LineReader(Protocol):
    """Source of input lines. `is_terminal` is true if a person types them."""

    is_terminal: bool

    async def read(self, question: str = "", text: str = "") -> str | None:
        """Return the next line, None at the end. Raises KeyboardInterrupt for Ctrl-C at the prompt.

        With a `question` the line is the answer to it: it is no part of the history. The line begins as `text`, to be
        edited.
        """


@dataclass(frozen=True, slots=True)
class CliDependencies:
    """Dependencies of the commands.

    - `open_local_service` serves the REST application in this process over a unix socket while the context is open.
      It yields the socket's path, and must not install signal handlers.
    - `front_end` runs a front end that needs no HTTP application.
    - `database` opens the configured database while the context is open.
    - `check_model` takes the name of an agent and calls its model.
    - `check_servers` takes the name of an agent and returns the servers that it names, and their tools.
    - `stored_threads` opens the threads in the database at a URL, with the messages of a channel of LangGraph, while
      the context is open.
    - `standard_input_lines` returns the reader for a chat.
    """

    serve: Callable[[ServeOptions], None]
    worker: Callable[[WorkerOptions], None]
    front_end: Callable[[FrontEndOptions], None]
    open_local_service: Callable[[LocalOptions], AbstractAsyncContextManager[Path]]
    standard_input_lines: Callable[[], LineReader]
    database: Callable[[LocalOptions], AbstractAsyncContextManager["Database"]]
    upgrade_database: Callable[[LocalOptions], Awaitable[None]]
    database_status: Callable[[LocalOptions], Awaitable[DatabaseStatus]]
    database_address: Callable[[LocalOptions], Awaitable[str]]
    check_model: Callable[[str], Awaitable[ModelCheck]]
    check_servers: Callable[[str], Awaitable[tuple[tuple[ToolServer, ...], ServedTools]]]
    service_status: Callable[[LocalOptions], Awaitable[ServiceStatus]]
    stored_threads: Callable[[str, str], AbstractAsyncContextManager[StoredThreads]]
