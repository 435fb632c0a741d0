"""The root of the command line: puts the commands together and turns errors into one line and an exit code."""

from importlib.metadata import version
from typing import IO

import click

from app.cli.commands_chat import agents_command, chat_command
from app.cli.commands_keys import keys_group
from app.cli.commands_memories import memories_group
from app.cli.commands_service import db_group, serve_command, worker_command
from app.cli.commands_sessions import sessions_group
from app.cli.commands_slack import slack_group
from app.cli.parts import Parts
from app.cli.screen import Screen, tolerate_any_character
from app.domain.errors import ThroughlineError


class ThroughlineCli(click.Group):
    """Shows our own errors as `Error: …` with exit code 1; click does the same for usage errors with 2."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the chosen command."""
        tolerate_any_character()
        try:
            return super().invoke(ctx)
        except ThroughlineError as error:
            raise _Told(error.detail) from error


class _Told(click.ClickException):
    """One of our errors, told as in a chat."""

    def show(self, _file: IO[str] | None = None) -> None:
        """Print it to standard error."""
        Screen().error(self.message)


def build_cli(parts: Parts) -> click.Group:
    """Return the command line over `parts`."""
    root = ThroughlineCli(
        "throughline",
        help="An agent service whose conversations can run for ever.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    commands = (
        serve_command(parts),
        worker_command(parts),
        slack_group(parts),
        chat_command(parts),
        sessions_group(parts),
        memories_group(parts),
        agents_command(parts),
        keys_group(parts),
        db_group(parts),
    )
    for command in commands:
        root.add_command(command)
    return click.version_option(version("throughline"), prog_name="throughline")(root)
