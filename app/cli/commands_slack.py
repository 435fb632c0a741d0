"""`throughline slack`, `throughline slack manifest` and `throughline slack link`."""

import asyncio
from pathlib import Path

import click

from app.cli.connection import data_dir_option
from app.cli.parts import LocalOptions, Parts, SlackOptions
from app.cli.screen import Screen


def slack_group(parts: Parts) -> click.Group:
    """Return the group `slack`, which without a further command takes part in Slack."""

    @click.group("slack", invoke_without_command=True)
    @data_dir_option
    @click.option("--no-worker", is_flag=True, help="Only take and deliver; `throughline worker` answers.")
    @click.pass_context
    def group(context: click.Context, data_dir: Path | None, no_worker: bool) -> None:
        """Take part in Slack over Socket Mode until stopped. Over HTTP, `throughline serve` does."""
        if context.invoked_subcommand is None:
            parts.slack(SlackOptions(data_dir=data_dir, no_worker=no_worker))

    group.add_command(_manifest_command(parts))
    group.add_command(_link_command(parts))
    return group


def _manifest_command(parts: Parts) -> click.Command:
    @click.command("manifest")
    @click.option("--name", default="Throughline", show_default=True, help="What the app and its bot are called.")
    @click.option("--url", default="", help="Where the service is reached, such as https://bot.example.com; for HTTP.")
    def command(name: str, url: str) -> None:
        """Print the app's manifest: for Socket Mode, or with --url for events over HTTP."""
        if url and not url.startswith("https://"):
            raise click.BadParameter("Slack reaches only addresses that begin with https://.", param_hint="--url")
        click.echo(parts.slack_manifest(name, url))

    return command


def _link_command(parts: Parts) -> click.Command:
    @click.command("link")
    @click.option("--user", required=True, help="The user somebody in Slack is to be.")
    @data_dir_option
    def command(user: str, data_dir: Path | None) -> None:
        """Print a code; whoever types `/agent link CODE` in Slack is this user from then on."""
        code = asyncio.run(_link(parts, LocalOptions(data_dir), user))
        click.echo(f"/agent link {code}")
        Screen().note("it works once, for 30 minutes: give it to nobody else")

    return command


async def _link(parts: Parts, options: LocalOptions, user: str) -> str:
    return await parts.slack_link_code(options, user)
