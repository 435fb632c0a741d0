"""The command `throughline status`: the processes on this database, waiting work, and work in progress."""

import json
from pathlib import Path

import click

from throughline.cli.connection import asynchronous, data_dir_option
from throughline.cli.dependencies import CliDependencies, LocalOptions
from throughline.cli.screen import Screen
from throughline.cli.status_views import draw_status, status_json
from throughline.domain.errors import NoWorkerAvailable


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@data_dir_option
@click.pass_obj
@asynchronous
async def status(dependencies: CliDependencies, as_json: bool, data_dir: Path | None) -> None:
    """Show the processes of the service, waiting work and work in progress.

    Reads the database that this machine is configured for, as `throughline db status` does, and writes nothing. The
    exit code is 1 if there is no database. It is also 1 if turns wait, or were left by a dead process, and no process
    has recently reported that it takes turns.
    """
    found = await dependencies.service_status(LocalOptions(data_dir))
    if as_json:
        click.echo(json.dumps(status_json(found), indent=2))
    else:
        screen = Screen()
        screen.say(f"Database: {found.database}")
        for drawing in draw_status(found):
            screen.draw(drawing)
    if found.is_stuck:
        raise NoWorkerAvailable(
            f"Turns without a process: {found.unclaimed_turns}. No process takes turns: start `throughline worker`, "
            "or look at the logs of those that run."
        )
