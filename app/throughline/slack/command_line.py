"""The command `throughline slack`, which runs until stopped, and those below it."""

from pathlib import Path

import click

from throughline.cli.connection import asynchronous, data_dir_option, health_port_option
from throughline.cli.dependencies import CliDependencies, FrontEndOptions, LocalOptions
from throughline.cli.screen import Screen


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
    *,
    no_worker: bool,
    health_port: int | None,
) -> None:
    """Connect to Slack over Socket Mode until stopped. For Slack over HTTP, use `throughline serve`."""
    if context.invoked_subcommand is None:
        dependencies.front_end(FrontEndOptions("slack", data_dir, no_worker=no_worker, health_port=health_port))


@slack.command("manifest")
@click.option("--name", default="Throughline", show_default=True, help="Name of the app and its bot.")
@click.option("--url", default="", help="Public address of the service, such as https://bot.example.com; for HTTP.")
def print_manifest(name: str, url: str) -> None:
    """Print the Slack app's manifest: for Socket Mode, or with --url for events over HTTP."""
    from throughline.slack.setup_check import manifest

    if url and not url.startswith("https://"):
        raise click.BadParameter("Slack reaches only addresses that begin with https://.", param_hint="--url")
    click.echo(manifest(name, url))


@slack.command("link")
@click.option("--user", required=True, help="User that the person in Slack becomes.")
@data_dir_option
@click.pass_obj
@asynchronous
async def link(dependencies: CliDependencies, user: str, data_dir: Path | None) -> None:
    """Print a code. The person who types `/agent link CODE` in Slack becomes this user."""
    from throughline.slack.store.database import slack_database

    async with dependencies.database(LocalOptions(data_dir)) as database:
        code = await slack_database(database).links.new_code(await database.users.get_or_create(user))
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
    from throughline.slack.store.database import slack_database

    team, _, name = slack_user.rpartition(":")
    if bool(user) == bool(name):
        raise click.UsageError("Give either --user or --slack-user.")
    async with dependencies.database(LocalOptions(data_dir)) as database:
        links = slack_database(database).links
        ended = [await links.unlink(name, team)] if name else await links.unlink_all(user)
    for who in ended:
        click.echo(f"{who.team_id}:{who.user_id}")
    Screen().note("they are guests from now on; answers to earlier messages still belong to the user")
