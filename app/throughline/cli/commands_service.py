"""The commands `throughline serve`, `worker` and `slack`, which run until stopped, and `throughline db`."""

from pathlib import Path

import click

from throughline.cli.connection import asynchronous, data_dir_option
from throughline.cli.dependencies import (
    CliDependencies,
    DatabaseStatus,
    LocalOptions,
    ServeOptions,
    SlackOptions,
    SlackUnlink,
    WorkerOptions,
)
from throughline.cli.screen import Screen
from throughline.domain.errors import DatabaseUnusable

health_port_option = click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    help="Port for health and metrics; 0 takes a free one.  [default: HEALTH_PORT, nowhere]",
)
db = click.Group("db", help="Upgrade the database's schema and show its state.")


@click.command("serve")
@click.option("--host", help="Address to listen on.  [default: setting HOST, 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.  [default: PORT, 8000]")
@data_dir_option
@click.option(
    "--no-worker", is_flag=True, help="Accept messages without answering them; `throughline worker` does that."
)
@click.pass_obj
def serve(
    dependencies: CliDependencies, host: str | None, port: int | None, data_dir: Path | None, no_worker: bool
) -> None:
    """Serve the REST interface until stopped."""
    dependencies.serve(ServeOptions(host=host, port=port, data_dir=data_dir, no_worker=no_worker))


@click.command("worker")
@click.option("--concurrency", type=click.IntRange(1, 5_000), help="Most open turns.  [default: WORKER_CONCURRENCY]")
@health_port_option
@data_dir_option
@click.pass_obj
def worker(
    dependencies: CliDependencies, concurrency: int | None, health_port: int | None, data_dir: Path | None
) -> None:
    """Run only a worker, until stopped."""
    dependencies.worker(WorkerOptions(concurrency=concurrency, data_dir=data_dir, health_port=health_port))


@click.group("slack", invoke_without_command=True)
@data_dir_option
@click.option(
    "--no-worker", is_flag=True, help="Receive messages and deliver answers; `throughline worker` runs the turns."
)
@health_port_option
@click.pass_context
@click.pass_obj
def slack(
    dependencies: CliDependencies,
    context: click.Context,
    data_dir: Path | None,
    no_worker: bool,
    health_port: int | None,
) -> None:
    """Connect to Slack over Socket Mode until stopped. For Slack over HTTP, use `throughline serve`."""
    if context.invoked_subcommand is None:
        dependencies.slack(SlackOptions(data_dir=data_dir, no_worker=no_worker, health_port=health_port))


@slack.command("manifest")
@click.option("--name", default="Throughline", show_default=True, help="Name of the app and its bot.")
@click.option("--url", default="", help="Public address of the service, such as https://bot.example.com; for HTTP.")
@click.pass_obj
def print_manifest(dependencies: CliDependencies, name: str, url: str) -> None:
    """Print the Slack app's manifest: for Socket Mode, or with --url for events over HTTP."""
    if url and not url.startswith("https://"):
        raise click.BadParameter("Slack reaches only addresses that begin with https://.", param_hint="--url")
    click.echo(dependencies.slack_manifest(name, url))


@slack.command("link")
@click.option("--user", required=True, help="User that the person in Slack becomes.")
@data_dir_option
@click.pass_obj
@asynchronous
async def link(dependencies: CliDependencies, user: str, data_dir: Path | None) -> None:
    """Print a code. The person who types `/agent link CODE` in Slack becomes this user."""
    code = await dependencies.slack_link_code(LocalOptions(data_dir), user)
    click.echo(f"/agent link {code}")
    Screen().note("it works once, within 30 minutes: give it only to that person")


@slack.command("unlink")
@click.option("--user", default="", help="Unlink all Slack users of this user.")
@click.option(
    "--slack-user", default="", metavar="[TEAM:]USER", help="Unlink one Slack user, such as U012ABC or T012ABC:U012ABC."
)
@data_dir_option
@click.pass_obj
@asynchronous
async def unlink(dependencies: CliDependencies, user: str, slack_user: str, data_dir: Path | None) -> None:
    """Make Slack users guests again, with an empty history, and print who was unlinked.

    What they wrote to the bot directly stays with the user, including what came with a link. Codes made before become
    invalid. Only a new code (`slack link`) links these people again; an e-mail address does not.
    """
    team, _, name = slack_user.rpartition(":")
    if bool(user) == bool(name):
        raise click.UsageError("Give either --user or --slack-user.")
    for ended in await dependencies.slack_unlink(LocalOptions(data_dir), SlackUnlink(user, slack_user=name, team=team)):
        click.echo(ended)
    Screen().note("they are guests from now on; answers to earlier messages still belong to the user")


@db.command("upgrade")
@data_dir_option
@click.pass_obj
@asynchronous
async def upgrade(dependencies: CliDependencies, data_dir: Path | None) -> None:
    """Upgrade the schema to the revision that this version needs."""
    options = LocalOptions(data_dir)
    await dependencies.upgrade_database(options)
    _show(await dependencies.database_status(options))


@db.command("status")
@data_dir_option
@click.pass_obj
@asynchronous
async def show_status(dependencies: CliDependencies, data_dir: Path | None) -> None:
    """Show the schema's revision; fail if an upgrade is due."""
    status = await dependencies.database_status(LocalOptions(data_dir))
    _show(status)
    if not status.is_current:
        raise DatabaseUnusable(
            "The schema does not have the revision that this version needs. Run `throughline db upgrade`."
        )


@db.command("address")
@data_dir_option
@click.pass_obj
@asynchronous
async def address(dependencies: CliDependencies, data_dir: Path | None) -> None:
    """Print the DATABASE_URL for your other programs; it contains the password."""
    click.echo(await dependencies.database_address(LocalOptions(data_dir)))
    Screen().note(
        "the embedded PostgreSQL runs only while a `throughline` process uses it; only this user of this machine "
        "can connect"
    )


def _show(status: DatabaseStatus) -> None:
    screen = Screen()
    screen.say(f"Schema   {status.current or 'empty'}")
    screen.say(f"Needed   {status.head}")
