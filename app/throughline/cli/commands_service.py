"""The commands `throughline serve` and `worker`, which run until stopped, `throughline db`, and `models check`.

`models check` uses the settings and keys of this machine and needs neither a service nor a database.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from throughline.cli.client import ModelCheckFailed
from throughline.cli.connection import asynchronous, data_dir_option, health_port_option
from throughline.cli.dependencies import (
    ChildOptions,
    CliDependencies,
    DatabaseStatus,
    LocalOptions,
    ServeOptions,
    WorkerOptions,
)
from throughline.cli.printable import printable
from throughline.cli.screen import Screen
from throughline.domain.errors import DatabaseUnusable
from throughline.domain.model_window import CheckedCall, CheckedModel, ModelCheck, ModelWindow, ToolUse
from throughline.domain.service_status import AUTO_PROCESSES, check_process_count
from throughline.turn.prompting.agent_windows import guess_remark

SHORT_SUMMARY_TOKENS = 250
NOT_REPORTED = "not reported"
CHILD = re.compile(r"[0-9]{1,9}(:[0-9]{1,9}){4}")
"""The fields of ChildOptions, as a supervisor writes them."""


def draw_check(check: ModelCheck) -> Table:
    """Return the properties of the model, and those of the call if it was answered."""
    table = Table(box=None, pad_edge=False, show_header=False)
    rows = [*_model_rows(check.checked), *(_call_rows(check.call, check.checked) if check.call else ())]
    for name, value in rows:
        table.add_row(Text(name), Text(printable(value)))
    return table


def remarks(check: ModelCheck) -> Iterator[str]:
    """Yield what the operator should know or change."""
    window, of_model = check.checked.window, check.checked.model_window
    if window.is_assumed:
        yield "the window is assumed: set context.window in the agent file to what the model can take"
    if window.neighbour:
        yield guess_remark(window)
    if not of_model.is_assumed and window.tokens > of_model.tokens:
        yield f"context.window in the agent file is larger than the model's {of_model.tokens:,}: longer prompts fail"
    if check.call is None:
        return
    yield from _pace_remarks(check.call, check.checked.summary_seconds)
    if check.call.usage.input_tokens is None:
        yield "without reported usage the service cannot correct its token counts"
    if check.call.tools is ToolUse.NOT_CALLED:
        yield "the model did not call the tool that it was asked to call: its tools may not work"
    if check.call.tools is ToolUse.REFUSED:
        yield f"the provider refused the tool: {check.call.refusal}"


def _pace_remarks(call: CheckedCall, summary_seconds: float | None) -> Iterator[str]:
    if summary_seconds is None or call.text_seconds <= 0:
        return
    speed = call.text_tokens / call.text_seconds
    if 0 < speed * summary_seconds < SHORT_SUMMARY_TOKENS:
        yield (
            f"at {speed:.3g} tokens/s a short summary of {SHORT_SUMMARY_TOKENS} tokens takes "
            f"{SHORT_SUMMARY_TOKENS / speed:.0f} s, and a turn waits {summary_seconds:g}: they are written between "
            "turns only; set context.summary.model to a faster one or raise context.summary.timeout_seconds"
        )


def _model_rows(checked: CheckedModel) -> Iterator[tuple[str, str]]:
    yield "Agent", checked.agent
    yield "Model", checked.model
    yield "Address", checked.address or "the provider's own"
    yield "Window", _window(checked.window, checked.model_window)


def _window(window: ModelWindow, of_model: ModelWindow) -> str:
    origin = f"{window.origin}: {window.server}" if window.server else str(window.origin)
    told = f"{window.tokens:,} tokens ({'assumed, ' if window.is_assumed else ''}{origin})"
    return told if window == of_model else f"{told}; the model's: {of_model.tokens:,} ({of_model.origin})"


def _call_rows(call: CheckedCall, checked: CheckedModel) -> Iterator[tuple[str, str]]:
    yield "Tokens", _counting(call, checked.counter)
    yield "Streaming", _streaming(call)
    yield "Tools", str(call.tools)
    yield "Usage", _usage(call)
    yield "Cache", _cache(call)
    yield "Finish", call.finish_reason


def _counting(call: CheckedCall, counter: str) -> str:
    reported = call.usage.input_tokens
    if reported is None:
        return f"{counter}: {call.counted_tokens:,} counted, {NOT_REPORTED}"
    difference = 100 * (reported - call.counted_tokens) / call.counted_tokens
    return f"{counter}: {call.counted_tokens:,} counted, {reported:,} reported ({difference:+.0f} %)"


def _streaming(call: CheckedCall) -> str:
    if call.first_text_seconds is None:
        return "no text to measure"
    first = f"first text after {1000 * call.first_text_seconds:,.0f} ms"
    if call.pieces == 1 or call.text_seconds <= 0:
        return f"{first}, in one piece"
    return f"{first}, {call.text_tokens / call.text_seconds:,.0f} tokens/s in {call.pieces:,} pieces"


def _usage(call: CheckedCall) -> str:
    prompt, answer = call.usage.input_tokens, call.usage.output_tokens
    if prompt is None and answer is None:
        return NOT_REPORTED
    return f"prompt {_number(prompt)}, answer {_number(answer)}"


def _cache(call: CheckedCall) -> str:
    cached = call.usage.cached_tokens
    return NOT_REPORTED if cached is None else f"{cached:,} tokens of the prompt were cached"


def _number(tokens: int | None) -> str:
    return NOT_REPORTED if tokens is None else f"{tokens:,}"


models = click.Group("models", help="Check the models of agents.")


@models.command("check")
@click.argument("agent")
@click.pass_obj
@asynchronous
async def check(dependencies: CliDependencies, agent: str) -> None:
    """Call the model of AGENT once, with a short prompt and a tool without effect, and print what that shows.

    Shown are window, token counting, streaming, tools, usage and cache. It uses the settings of this machine. The exit
    code is 1 if the model cannot be used, or if it refuses tools and the agent has some.
    """
    screen, found = Screen(), await dependencies.check_model(agent)
    screen.draw(draw_check(found))
    for remark in remarks(found):
        screen.warn(remark)
    if found.failure:
        raise ModelCheckFailed(found.failure)
    if found.lacks_tools:
        raise ModelCheckFailed(
            f"The agent {agent} has tools, and its model takes none. Set up the server for tool calls, choose another "
            "model, or remove `tools` from the agent file."
        )


db = click.Group("db", help="Upgrade the database's schema and show its state.")


def _checked_processes(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else check_process_count(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _child_options(_context: click.Context, _parameter: click.Parameter, value: str | None) -> ChildOptions | None:
    if value is None:
        return None
    options = ChildOptions(*map(int, value.split(":"))) if CHILD.fullmatch(value) else None
    if options is None or not (_is_socket(options.listener) and _is_socket(options.line)):
        raise click.BadParameter(
            "only `throughline serve` itself starts child processes. Use --processes to have several."
        )
    return options


def _is_socket(descriptor: int) -> bool:
    """Whether this process has inherited a socket with this file descriptor."""
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except (OSError, OverflowError):
        return False


@click.command("serve")
@click.option("--host", help="Address to listen on.  [default: setting HOST, 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.  [default: PORT, 8000]")
@data_dir_option
@click.option(
    "--no-worker", is_flag=True, help="Accept messages without answering them; `throughline worker` does that."
)
@click.option(
    "--processes",
    metavar=f"{AUTO_PROCESSES}|N",
    callback=_checked_processes,
    help="Processes that share the port; auto: one for each core.  [default: setting PROCESSES, 1]",
)
@click.option("--child", callback=_child_options, hidden=True)
@click.pass_obj
def serve(  # noqa: PLR0913  # click's options
    dependencies: CliDependencies,
    host: str | None,
    port: int | None,
    data_dir: Path | None,
    *,
    no_worker: bool,
    processes: str | None,
    child: ChildOptions | None,
) -> None:
    """Serve the REST interface until stopped."""
    dependencies.serve(ServeOptions(host, port, data_dir, no_worker, processes, child))


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
