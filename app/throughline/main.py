"""Entry point of the console script `throughline`.

Each command imports its own code when it runs, because importing all code takes seconds.
"""

from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from throughline.cli.dependencies import (
    CliDependencies,
    DatabaseStatus,
    KeyAdmin,
    LineReader,
    LocalOptions,
    ServeOptions,
    SlackOptions,
    SlackUnlink,
    WorkerOptions,
)
from throughline.cli.root import throughline
from throughline.domain.keys import ErasedUser
from throughline.domain.model_window import ModelCheck
from throughline.domain.service_status import ServiceStatus


def main() -> None:
    """Run the command line."""
    throughline(
        obj=CliDependencies(
            serve=_serve,
            worker=_worker,
            slack=_slack,
            slack_manifest=_slack_manifest,
            slack_link_code=_slack_link_code,
            erase_user=_erase_user,
            slack_unlink=_slack_unlink,
            open_local_service=_open_local_service,
            standard_input_lines=_standard_input_lines,
            keys=_keys,
            upgrade_database=_upgrade_database,
            database_status=_database_status,
            database_address=_database_address,
            check_model=_check_model,
            service_status=_service_status,
        )
    )


def _serve(options: ServeOptions) -> None:
    from throughline.assembly.programs import serve

    serve(options)


def _worker(options: WorkerOptions) -> None:
    from throughline.assembly.programs import work

    work(options)


def _slack(options: SlackOptions) -> None:
    from throughline.assembly.programs import serve_slack

    serve_slack(options)


def _slack_manifest(name: str, url: str) -> str:
    from throughline.slack.setup_check import manifest

    return manifest(name, url)


def _slack_link_code(options: LocalOptions, user: str) -> Awaitable[str]:
    from throughline.assembly.database import slack_link_code

    return slack_link_code(options, user)


def _erase_user(options: LocalOptions, name: str) -> Awaitable[ErasedUser]:
    from throughline.assembly.database import erase_user

    return erase_user(options, name)


def _slack_unlink(options: LocalOptions, whom: SlackUnlink) -> Awaitable[Sequence[str]]:
    from throughline.assembly.database import slack_unlink

    return slack_unlink(options, whom)


def _open_local_service(options: LocalOptions) -> AbstractAsyncContextManager[Path]:
    from throughline.assembly.programs import open_local_service

    return open_local_service(options)


def _standard_input_lines() -> LineReader:
    from throughline.cli.screen import standard_input_lines

    return standard_input_lines()


def _keys(options: LocalOptions) -> AbstractAsyncContextManager[KeyAdmin]:
    from throughline.assembly.database import open_keys

    return open_keys(options)


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


def _service_status(options: LocalOptions) -> Awaitable[ServiceStatus]:
    from throughline.assembly.database import service_status

    return service_status(options)
