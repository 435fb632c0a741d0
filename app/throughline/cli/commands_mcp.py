"""What the servers of tools offer that an agent names: for `throughline mcp check` and `throughline agents NAME`."""

import json
from collections.abc import Iterator, Sequence

import click
from rich.table import Table
from rich.text import Text

from throughline.cli.client import ServerCheckFailed
from throughline.cli.connection import asynchronous
from throughline.cli.dependencies import CliDependencies
from throughline.cli.printable import one_line, printable
from throughline.cli.screen import Screen
from throughline.domain.tool_server import ServedTool, ToolServer

MOST_SHOWN = 100
MOST_OF_SCHEMA = 20_000
"""Most characters shown of a tool's parameters. A tool with more is left out."""

INDENT = "  "

mcp = click.Group("mcp", help="Check the servers of tools (Model Context Protocol) that agents use.")


@mcp.command("check")
@click.argument("agent")
@click.pass_obj
@asynchronous
async def check(dependencies: CliDependencies, agent: str) -> None:
    """Connect to each server that AGENT names, and print the tools that it gets from it.

    It uses the settings and the environment of this machine, and starts the programs of servers. No tool is called.
    The exit code is 1 if a server cannot be used, or leaves out a tool.
    """
    screen, (servers, found) = Screen(), await dependencies.check_servers(agent)
    if not servers:
        screen.say(f"The agent {agent} names no servers; `mcp_servers` in its file does.")
    for server in servers:
        tools = [tool for tool in found.tools if tool.server == server]
        screen.say(f"{server.name}: {address_of(server)}: tools: {len(tools)}")
        if tools:
            screen.draw(draw_tools(tools))
    for name, problem in found.problems.items():
        screen.warn(f"{name}: {problem}")
    if found.problems:
        raise ServerCheckFailed(f"Servers with problems: {', '.join(found.problems)}.")


async def show_served_tools(screen: Screen, dependencies: CliDependencies, agent: str) -> None:
    """Connect to the servers that the agent names, and print their tools with descriptions and parameters."""
    _, found = await dependencies.check_servers(agent)
    for tool in found.tools:
        screen.draw(draw_served_tool(tool))
    for name, problem in found.problems.items():
        screen.warn(f"{name}: {problem}")


def draw_served_tool(tool: ServedTool) -> Text:
    """Return the tool as the model reads it, with what may be done with its calls."""
    schema = printable(json.dumps(tool.spec.parameters, ensure_ascii=False))[:MOST_OF_SCHEMA]
    lines = (*printable(tool.spec.description).splitlines(), f"parameters: {schema}")
    heading = Text(f"\n{tool.spec.name} ({', '.join(_notes(tool))})", style="bold")
    return Text("\n").join([heading, *(Text(f"{INDENT}{line}") for line in lines)])


def address_of(server: ToolServer) -> str:
    """Return what tells the server from others: its address, or its program with the arguments."""
    return one_line(server.url or " ".join(server.command), limit=MOST_SHOWN)


def draw_tools(tools: Sequence[ServedTool]) -> Table:
    """Return a table of the tools: the name that the model knows, what may be done with a call, what it does."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for head in ("Tool", "Calls", "Does"):
        table.add_column(head, overflow="fold")
    for tool in tools:
        cells = (tool.spec.name, ", ".join(_notes(tool)), one_line(tool.spec.description, limit=MOST_SHOWN))
        table.add_row(*map(Text, cells))
    return table


def _notes(tool: ServedTool) -> Iterator[str]:
    if tool.needs_approval:
        yield "need approval"
    yield "may be repeated" if tool.is_repeatable else "are not repeated"
