"""The command `throughline usage`: what model calls used and cost, with a bar for each group."""

import json

import click

from throughline.cli.connection import Target, asynchronous, open_client, target_options
from throughline.cli.screen import Screen
from throughline.cli.usage_view import draw_usage, sum_line
from throughline.domain.usage_report import NO_KEYS, UsageKey, keys_of

MOST_DAYS = 3_660


def _checked(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        keys_of(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}") from None
    return value


@click.command("usage")
@click.option(
    "--by",
    default=UsageKey.DAY.value,
    show_default=True,
    callback=_checked,
    help=f"Fields to group by, separated by commas: {', '.join(UsageKey)}; {NO_KEYS}: one sum.",
)
@click.option("--days", type=click.IntRange(1, MOST_DAYS), default=30, show_default=True, help="Today and days before.")
@click.option("--all-users", is_flag=True, help="Calls of all users; the key needs the scope operate.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@target_options
@asynchronous
async def usage(by: str, days: int, all_users: bool, as_json: bool, target: Target) -> None:  # click's flags
    """Show what model calls used and cost: answers, summaries and embedded texts.

    Days are those of UTC. A cost that is not known is shown as a dash, never as 0.
    """
    async with open_client(target) as client:
        report = await client.usage(by, days=days, all_users=all_users)
    if as_json:
        click.echo(json.dumps(report.model_dump(mode="json"), indent=2))
        return
    screen = Screen()
    if not report.data:
        screen.note(f"no model calls in the last {days} days")
        return
    if report.data[0].group:
        screen.draw(draw_usage(report.data))
    screen.say(sum_line(report.data))
