"""`throughline status`: the processes on this database, what waits, and what is held."""

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
    """Show the processes of the service, what waits and what is held.

    Reads the database that this machine is set up for, as `throughline db status` does, and writes nothing. Ends with
    exit code 1 where there is no database, and where turns wait, or were left by a process that is gone, and no process
    has lately said that it takes any.
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
            f"Turns that nobody works on: {found.untaken}. No process takes any: start `throughline worker`, or look "
            "at the logs of those that run."
        )
