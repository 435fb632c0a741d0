"""The command `throughline usage`: what model calls used and cost, with a bar for each group."""

import json
from collections.abc import Sequence

import click
from rich.table import Table
from rich.text import Text

from throughline.cli.connection import Target, asynchronous, open_client, target_options
from throughline.cli.context_gauges import Gauge, draw_bar
from throughline.cli.printable import one_line
from throughline.cli.screen import Screen
from throughline.domain.usage_report import NO_KEYS, UsageKey, keys_of
from throughline.wire.service import UsageGroupOut

BAR_CELLS = 20
UNKNOWN = "–"
NOBODY = "(no single one)"
MOST_OF_NAME = 60
DOLLAR_STEPS = 1_000_000
"""Bars have integer lengths: millionths of a dollar."""


def draw_usage(groups: Sequence[UsageGroupOut]) -> Table:
    """Return a table with a row for each group. Bars compare costs, or tokens if no cost is known."""
    has_costs = any(group.cost_usd for group in groups)
    lengths = [round((group.cost_usd or 0) * DOLLAR_STEPS) if has_costs else tokens(group) for group in groups]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in groups[0].group:
        table.add_column(name.capitalize())
    for name in ("Calls", "Input", "Output", "Cost"):
        table.add_column(name, justify="right")
    table.add_column("")
    for group, length in zip(groups, lengths, strict=True):
        names = [one_line(name, limit=MOST_OF_NAME) if name else NOBODY for name in group.group.values()]
        bar = draw_bar(Gauge("", length, max(lengths), mark=None), inner=BAR_CELLS)
        bar.stylize("cyan")
        table.add_row(*map(Text, (*names, *_numbers(group))), bar)
    return table


def sum_line(groups: Sequence[UsageGroupOut]) -> str:
    """Return the line that adds up all groups."""
    known = [group.cost_usd for group in groups if group.cost_usd is not None]
    unpriced = sum(group.unpriced_calls for group in groups)
    calls, used = sum(group.calls for group in groups), sum(map(tokens, groups))
    cost = dollars(sum(known)) if known else "unknown cost"
    beside = f", and {unpriced:,} calls of unknown cost" if unpriced and known else ""
    return f"Together: {calls:,} calls, {used:,} tokens, {cost}{beside}"


def tokens(group: UsageGroupOut) -> int:
    """Return the tokens read and written, as far as they are known."""
    return (group.input_tokens or 0) + (group.output_tokens or 0)


def dollars(cost: float | None) -> str:
    """Return an amount with cents, a small one with more digits, and a dash for an unknown one."""
    if cost is None:
        return UNKNOWN
    return f"${cost:,.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"


def _numbers(group: UsageGroupOut) -> tuple[str, ...]:
    counts = (group.calls, group.input_tokens, group.output_tokens)
    cost = dollars(group.cost_usd)
    is_partial = group.cost_usd is not None and group.unpriced_calls > 0
    return (*(UNKNOWN if count is None else f"{count:,}" for count in counts), f"{cost}+" if is_partial else cost)


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
