"""The command `throughline status`: the processes on this database, waiting work, and work in progress."""

import json
from collections.abc import Iterator, Mapping, Sequence

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from throughline.cli.connection import ServiceTarget, asynchronous, open_client, target_options
from throughline.cli.context_views import draw_bar
from throughline.cli.dependencies import LocalOptions
from throughline.cli.printable import moment, one_line, printable, to_the_second
from throughline.cli.screen import Screen
from throughline.domain.errors import NoWorkerAvailable
from throughline.domain.usage_report import NO_KEYS, UsageKey, keys_of
from throughline.wire.gauges import Gauge
from throughline.wire.service import (
    AgentFilesOut,
    HeldRunsOut,
    ModelBreakerOut,
    ProcessOut,
    QueueOut,
    ReplicaOut,
    ServiceStatusOut,
    ToolServerOut,
    UsageGroupOut,
    WorkOut,
    status_json,
)

BAR_CELLS = 20
UNKNOWN = "–"
NOBODY = "(not assigned)"
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
async def usage(by: str, days: int, all_users: bool, as_json: bool, target: ServiceTarget) -> None:  # click's flags
    """Show what model calls used and cost: answers, summaries and embedded texts.

    Days are those of UTC. A cost that is not known is shown as a dash, never as 0.
    """
    async with open_client(target) as client:
        report = await client.usage(by, days=days, all_users=all_users)
        age = client.age
    screen = Screen()
    screen.note_age(age)
    if as_json:
        click.echo(json.dumps(report.model_dump(mode="json"), indent=2))
        return
    if not report.data:
        screen.note(f"no model calls in the last {days} days")
        return
    if report.data[0].group:
        screen.draw(draw_usage(report.data))
    screen.say(sum_line(report.data))


MINUTE, HOUR, DAY = 60, 3_600, 86_400
NONE = "–"
MOST_SILENT = 5
WARNING, BAD = "yellow", "bold red"


def draw_status(status: ServiceStatusOut) -> Iterator[RenderableType]:
    """Yield the drawings of the state, from processes to side jobs. Problems are coloured."""
    yield from _draw_processes(status)
    yield Text()
    yield Text(f"Waiting turns: {_line(status.queued)}", style=BAD if status.is_stuck else "")
    yield Text(f"Running turns: {sum(held.runs for held in status.held)}")
    if status.held:
        yield _held(status.held, {noted.name: noted for noted in status.processes})
    work = (*status.jobs, *(() if status.slack is None else (status.slack,)))
    yield Text()
    yield Text("Side jobs and Slack deliveries" if status.slack is not None else "Side jobs")
    yield _work(work) if work else Text("none", style="dim")
    if status.breakers:
        yield Text()
        yield Text("Circuit breakers of the process that answered")
        yield _breakers(status.breakers)
    if status.agent_files is not None:
        yield from _draw_agent_files(status.agent_files)
    if status.tool_servers:
        yield from _draw_tool_servers(status.tool_servers)
    if status.replica is not None:
        yield Text()
        yield _draw_replica(status.replica)


def _draw_processes(status: ServiceStatusOut) -> Iterator[RenderableType]:
    versions = {noted.version for noted in status.processes}
    text = f" · version {printable(', '.join(sorted(versions)))}" if versions else ""
    living = sum(not noted.is_silent for noted in status.processes)
    schema = printable(status.schema_revision)
    yield Text(f"Processes: {living}, taking turns: {status.claiming_processes} · schema {schema}{text}")
    shown = _shown(status.processes)
    if shown:
        yield _processes(shown, is_mixed=len(versions) > 1)
    if more := len(status.processes) - len(shown):
        yield Text(f"and {more} more, silent for longer", style="dim")


def duration(seconds: float) -> str:
    """Return a duration in its largest unit and the next one, as integers: `47s`, `12m 5s`, `3h 20m`, `9d 4h`."""
    whole = max(int(seconds), 0)
    for unit, name, part, part_name in ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "m"), (MINUTE, "m", 1, "s")):
        if whole >= unit:
            return f"{whole // unit}{name} {whole % unit // part}{part_name}"
    return f"{whole}s"


def _shown(processes: Sequence[ProcessOut]) -> Sequence[ProcessOut]:
    """Return the living processes and the last few that fell silent.

    The number of silent ones is limited, because a process that dies at every start leaves a row each time.
    """
    silent = sorted((noted for noted in processes if noted.is_silent), key=lambda noted: noted.since_heartbeat_seconds)
    hidden = {noted.id for noted in silent[MOST_SILENT:]}
    return [noted for noted in processes if noted.id not in hidden]


def _processes(processes: Sequence[ProcessOut], *, is_mixed: bool) -> Table:
    table = _table("Kind", "Name", "Up", "Last heartbeat", "Turns", "Jobs", "State")
    for noted in processes:
        state, style = _state(noted)
        if is_mixed:
            state = f"{state}, {noted.version}"
        has_turns = noted.concurrency > 0
        cells = (
            noted.kind,
            noted.name,
            duration(noted.up_seconds),
            f"{duration(noted.since_heartbeat_seconds)} ago",
            f"{noted.open_turns}/{noted.concurrency}" if has_turns else NONE,
            str(noted.jobs_in_hand) if has_turns else NONE,
            state,
        )
        table.add_row(*(Text(printable(cell), style=style) for cell in cells))
    return table


def _state(noted: ProcessOut) -> tuple[str, str]:
    """Return the state of a process as text, and its colour."""
    if noted.is_silent:
        return "silent, may be dead", BAD
    said = []
    if noted.concurrency and not noted.takes_turns:
        said.append("answers no messages now")
    if not noted.is_listening:
        said.append("receives no notifications")
    return (", ".join(said), WARNING) if said else ("ok", "")


def _held(all_held: Sequence[HeldRunsOut], processes: dict[str, ProcessOut]) -> Table:
    table = _table("Held by", "Turns", "Lease left", "Longest", "State")
    for held in all_held:
        left = (
            duration(held.lease_seconds) if held.lease_seconds > 0 else f"expired {duration(-held.lease_seconds)} ago"
        )
        cells = (held.worker, str(held.runs), left, duration(held.oldest_seconds), _held_state(held, processes))
        table.add_row(*(Text(printable(cell), style=BAD if held.expired else "") for cell in cells))
    return table


def _held_state(held: HeldRunsOut, processes: Mapping[str, ProcessOut]) -> str:
    """Return the state of the runs that a process holds, as text."""
    said = [f"{held.expired} EXPIRED"] if held.expired else []
    noted = processes.get(held.worker)
    if noted is None:
        said.append("process unknown")
    elif noted.is_silent:
        said.append("process silent")
    return ", ".join(said) or "ok"


def _work(all_work: Sequence[WorkOut]) -> Table:
    table = _table("Kind", "Waiting", "Retrying", "Oldest", "Running", "Failed in 24h")
    for work in all_work:
        oldest = NONE if work.oldest_seconds is None else duration(work.oldest_seconds)
        counts = (work.waiting, work.retrying, work.in_hand, work.failed)
        waiting, retrying, in_hand, failed = (str(count) for count in counts)
        style = WARNING if work.failed or work.retrying else ""
        cells = (work.kind, waiting, retrying, oldest, in_hand, failed)
        table.add_row(*(Text(printable(cell), style=style) for cell in cells))
    return table


def _table(*heads: str) -> Table:
    """Return an empty table. On a narrow screen, names and remarks are wrapped, numbers never."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for head in heads:
        is_long = head in {"Name", "Held by", "Kind", "State", "Model", "Agent", "File"}
        table.add_column(head, overflow="fold", no_wrap=not is_long, min_width=None if is_long else len(head))
    return table


def _line(line: QueueOut) -> str:
    return str(line.waiting) + (
        "" if line.oldest_seconds is None else f", the oldest for {duration(line.oldest_seconds)}"
    )


def _breakers(breakers: Sequence[ModelBreakerOut]) -> Table:
    table = _table("Model", "For", "State", "Tried again in")
    for each in breakers:
        wait = duration(each.retry_after_seconds) if each.retry_after_seconds > 0 else NONE
        style = "" if each.state == "closed" else WARNING
        cells = (each.model, each.purpose, each.state.replace("_", " "), wait)
        table.add_row(*(Text(printable(cell), style=style) for cell in cells))
    return table


def _draw_agent_files(files: AgentFilesOut) -> Iterator[RenderableType]:
    yield Text()
    yield Text("Agents of the process that answered")
    table = _table("Agent", "File", "Read")
    for each in files.agents:
        cells = (each.agent, each.file or "(comes with the service)", moment(each.read_at))
        table.add_row(*(Text(printable(cell)) for cell in cells))
    yield table
    if files.refused is None:
        return
    yield Text(f"Agent files refused {moment(files.refused.at)}; the agents stay as they were:", style=BAD)
    for error in files.refused.errors:
        yield Text(printable(f"{error.file}: {error.detail}" if error.file else error.detail), style=BAD)


def _draw_tool_servers(servers: Sequence[ToolServerOut]) -> Iterator[RenderableType]:
    yield Text()
    yield Text("Servers of tools (MCP) of the process that answered")
    table = _table("Name", "Agent", "State", "Tools", "Protocol", "Listed")
    for each in servers:
        listed = NONE if each.listed_seconds_ago is None else f"{duration(each.listed_seconds_ago)} ago"
        tools = NONE if each.tools is None else str(each.tools)
        cells = (each.name, ", ".join(each.agents), each.state, tools, each.protocol or NONE, listed)
        table.add_row(*(Text(printable(cell), style=WARNING if each.state == "failed" else "") for cell in cells))
    yield table
    for each in servers:
        for remark in _remarks(each):
            yield Text(printable(f"{each.name}: {remark}"), style=WARNING)


def _draw_replica(replica: ReplicaOut) -> Text:
    as_of = "" if replica.as_of is None else f", with changes until {to_the_second(replica.as_of)}"
    state = f"the primary answers instead ({replica.state})" if replica.is_refused else f"{replica.state}{as_of}"
    return Text(printable(f"Replica {replica.place}: {state}"), style=WARNING if replica.is_refused else "")


def _remarks(server: ToolServerOut) -> Iterator[str]:
    """Yield why a server is lost, what is wrong with its list, and how that changed."""
    if server.reason:
        yield server.reason
    yield from server.problems
    change = server.last_change
    if change is not None:
        counts = f"{change.added} added, {change.removed} removed, {change.changed} changed"
        yield f"its tools changed {duration(change.seconds_ago)} ago: {counts}"


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@target_options
@asynchronous
async def status(as_json: bool, target: ServiceTarget) -> None:  # click's flag
    """Show the processes of the service, waiting work and work in progress.

    With --url the service there is asked, also for its circuit breakers, agent files and servers of tools; the key
    needs the scope operate. Without it, the database is read that this machine is configured for, as `throughline db
    status` does, and nothing is written.
    The exit code is 1 if there is no database. It is also 1 if turns wait, or were left by a dead process, and no
    process has recently reported that it takes turns.
    """
    found = await _read_status(target)
    if as_json:
        click.echo(json.dumps(found.model_dump(mode="json", by_alias=True), indent=2))
    else:
        screen = Screen()
        screen.say(f"Database: {printable(found.database)}")
        for drawing in draw_status(found):
            screen.draw(drawing)
    if found.is_stuck:
        raise NoWorkerAvailable(
            f"Turns without a process: {found.unclaimed_turns}. No process answers messages: start "
            "`throughline worker`, or look at the logs of those that run."
        )


async def _read_status(target: ServiceTarget) -> ServiceStatusOut:
    if target.url is None:
        found = await target.dependencies.service_status(LocalOptions(target.data_dir))
        return ServiceStatusOut.model_validate(status_json(found))
    async with open_client(target) as client:
        return await client.service_status()
