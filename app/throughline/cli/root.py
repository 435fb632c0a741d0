"""Root of the command line: it joins the commands and turns errors into one line and an exit code."""

from collections.abc import Sequence
from typing import IO

import click

from throughline.cli.chat.command import agents_command, chat_command
from throughline.cli.client import TurnWaits
from throughline.cli.commands_keys import keys, memories, users
from throughline.cli.commands_mcp import mcp
from throughline.cli.commands_service import db, models, serve, worker
from throughline.cli.commands_sessions import runs, sessions
from throughline.cli.commands_status import status, usage
from throughline.cli.screen import Screen, tolerate_any_character
from throughline.domain.errors import ThroughlineError


class ThroughlineCli(click.Group):
    """Command group that prints the service's errors as `Error: …` with exit code 1, or 3 for a turn that waits.

    click does the same for usage errors with exit code 2.
    """

    def invoke(self, ctx: click.Context) -> object:
        tolerate_any_character()
        try:
            return super().invoke(ctx)
        except ThroughlineError as error:
            kind = _ShownWait if isinstance(error, TurnWaits) else _ShownError
            raise kind(error.detail) from error


class _ShownError(click.ClickException):
    """An error of the service, printed in the same way as in a chat."""

    def show(self, _file: IO[str] | None = None) -> None:
        """Print the error to standard error."""
        Screen().error(self.message)


class _ShownWait(_ShownError):
    """A turn that waits for something from outside."""

    exit_code = 3

    def show(self, _file: IO[str] | None = None) -> None:
        """Print what it waits for to standard error."""
        Screen().warn(self.message)


def command_line(front_ends: Sequence[click.Command]) -> click.Group:
    """Return the command line with the commands of front ends. It is called with its `CliDependencies` as `obj`."""
    group = ThroughlineCli(
        "throughline",
        commands=[
            serve,
            worker,
            *front_ends,
            chat_command,
            sessions,
            runs,
            memories,
            agents_command,
            models,
            mcp,
            usage,
            keys,
            users,
            status,
            db,
        ],
        help="An agent service whose conversations can run for ever.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    return click.version_option(package_name="throughline", prog_name="throughline")(group)
