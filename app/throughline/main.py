"""Entry point of the console script `throughline`.

Each command imports its own code when it runs, because importing all code takes seconds.
"""

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from throughline.assembly.front_ends import commands
from throughline.cli.dependencies import (
    CliDependencies,
    DatabaseStatus,
    FrontEndOptions,
    LineReader,
    LocalOptions,
    ServeOptions,
    WorkerOptions,
)
from throughline.cli.root import command_line
from throughline.domain.model_window import ModelCheck
from throughline.domain.service_status import ServiceStatus
from throughline.domain.tool_server import ServedTools, ToolServer
from throughline.ports.stored_threads import StoredThreads

if TYPE_CHECKING:
    from throughline.db.database import Database


def main() -> None:
    """Run the command line."""
    command_line(commands())(
        obj=CliDependencies(
            serve=_serve,
            worker=_worker,
            front_end=_front_end,
            open_local_service=_open_local_service,
            standard_input_lines=_standard_input_lines,
            database=_database,
            upgrade_database=_upgrade_database,
            database_status=_database_status,
            database_address=_database_address,
            check_model=_check_model,
            check_servers=_check_servers,
            service_status=_service_status,
            stored_threads=_stored_threads,
        )
    )


def _serve(options: ServeOptions) -> None:
    from throughline.assembly.serve_processes import serve_in_processes

    if serve_in_processes(options):
        return
    from throughline.assembly.programs import serve

    serve(options)


def _worker(options: WorkerOptions) -> None:
    from throughline.assembly.programs import work

    work(options)


def _front_end(options: FrontEndOptions) -> None:
    from throughline.assembly.programs import serve_front_end

    serve_front_end(options)


def _open_local_service(options: LocalOptions) -> AbstractAsyncContextManager[Path]:
    from throughline.assembly.programs import open_local_service

    return open_local_service(options)


def _standard_input_lines() -> LineReader:
    from throughline.cli.screen import standard_input_lines

    return standard_input_lines()


def _database(options: LocalOptions) -> AbstractAsyncContextManager["Database"]:
    from throughline.assembly.database import open_for_command

    return open_for_command(options)


def _upgrade_database(options: LocalOptions) -> Awaitable[None]:
    from throughline.assembly.database import upgrade_database

    return upgrade_database(options)


def _database_status(options: LocalOptions) -> Awaitable[DatabaseStatus]:
    from throughline.assembly.database import database_status

    return database_status(options)


def _database_address(options: LocalOptions) -> Awaitable[str]:
    from throughline.assembly.database import database_address

    return database_address(options)


def _check_model(agent: str) -> Awaitable[ModelCheck]:
    from throughline.assembly.models import check_model_of

    return check_model_of(agent)


def _check_servers(agent: str) -> Awaitable[tuple[tuple[ToolServer, ...], ServedTools]]:
    from throughline.assembly.tool_servers import check_servers_of

    return check_servers_of(agent)


def _service_status(options: LocalOptions) -> Awaitable[ServiceStatus]:
    from throughline.assembly.database import service_status

    return service_status(options)


def _stored_threads(url: str, channel: str) -> AbstractAsyncContextManager[StoredThreads]:
    from throughline.db.langgraph_checkpoints import open_threads

    return open_threads(url, channel)
