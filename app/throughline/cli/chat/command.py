"""The commands `throughline chat` and `throughline agents`."""

import re
from collections.abc import Awaitable, Iterator, Mapping
from pathlib import Path

import click
from pydantic import JsonValue
from rich.table import Table
from rich.text import Text

from throughline.cli.chat.print_answer import answer, ask_pending
from throughline.cli.chat.slash_commands import run_command
from throughline.cli.chat.state import ChatState, in_history
from throughline.cli.client import ServiceClient
from throughline.cli.commands_mcp import show_served_tools
from throughline.cli.connection import ServiceTarget, asynchronous, open_client, target_options
from throughline.cli.dependencies import LineReader
from throughline.cli.printable import one_line, printable
from throughline.cli.screen import Screen
from throughline.cli.session_files import check_id, whole_id
from throughline.domain.errors import InvalidInput, ThroughlineError
from throughline.domain.message import clean_text, is_blank
from throughline.domain.model_window import WindowOrigin
from throughline.wire.service import AgentOut


async def chat(state: ChatState, lines: LineReader) -> None:
    """Read and execute lines until the end of input or `/quit`.

    At a terminal, the chat begins with what a waiting turn of its session asks, and an error is printed and the chat
    continues. For lines from a pipe, the first error is raised, because the remaining lines were written for another
    situation.
    """
    if lines.is_terminal:
        state.lines = lines
        await _attempt(state, ask_pending(state))
    while not state.is_over:
        draft, state.draft = state.draft, ""
        try:
            line = await lines.read(text=draft)
        except KeyboardInterrupt:
            state.screen.note("/quit or Ctrl-D leaves")
            continue
        if line is None:
            return
        await _attempt(state, take_line(state, clean_text(line)))


async def _attempt(state: ChatState, work: Awaitable[object]) -> None:
    try:
        await work
    except ThroughlineError as error:
        if state.lines is None:
            raise
        state.screen.error(error.detail)


async def take_line(state: ChatState, line: str) -> None:
    """Run the command in a line, or send the line as a message. A blank line does nothing."""
    if is_blank(line):
        return
    if line.startswith("/") and not line.startswith("//"):
        await run_command(state, line)
    else:
        await answer(state, line.removeprefix("/") if line.startswith("//") else line)


NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")

AGENT_FILE = """\
# Every other field, with its default: docs/reference/agent-file.md
name: "{name}"
description: Says what it is for, in one line.
model:                      # empty: the setting DEFAULT_LLM
system_prompt: |-
  You are {name}. Answer clearly and briefly.
tools: [current_time, "{module}:{prefix}_word_count"]
"""
TOOL_FILE = '''\
"""Tools of the agent {name}. Annotations become the schema, the docstring is what the model knows of a tool.

LangChain's tools and toolkits work as well: name the object in the agent file as `{module}:attribute`.
"""


def {prefix}_word_count(text: str) -> int:
    """Return how many words a text has.

    Args:
        text: the text to count in.
    """
    return len(text.split())
'''


@click.command("new")
@click.argument("name")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    envvar="AGENTS_DIR",
    help="Folder of the files.  [default: AGENTS_DIR, agents]",
)
def new_agent(name: str, folder: Path | None) -> None:
    """Write an agent file NAME.yaml and a file with a tool beside it. No file is overwritten."""
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:70]!r} cannot be an agent's name: write a small letter, then small letters, digits, '_' or '-'."
        )
    target = folder or Path("agents")
    prefix = name.replace("-", "_")
    module = f"{prefix}_tools"
    files = {target / f"{name}.yaml": AGENT_FILE, target / f"{module}.py": TOOL_FILE}
    present = [str(path) for path in files if path.exists()]
    if present:
        raise InvalidInput(f"{', '.join(present)}: exists already. Choose another name, or another folder with --dir.")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text.format(name=name, module=module, prefix=prefix), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{target}: cannot be written ({error.strerror or type(error).__name__}).") from error
    screen = Screen()
    for path in files:
        screen.say(f"wrote {path}")
    screen.note("try it:", command=f"AGENTS_DIR={target} throughline chat {name}")


INDENT = "  "
WINDOW_FROM = {
    "agent file": "agent file (context.window)",
    "learned": "learned (a provider's refusal named it)",
    "server": "server (the model's server reports it)",
    "profile": "profile (of the model in LangChain)",
    "table": "table (of well-known models in the service)",
    "unknown": "unknown (assumed; set context.window in the agent file)",
}


def drawn_window(agent: AgentOut) -> str:
    """Return the agent's window for a table, with a mark if it is assumed."""
    return f"{agent.window:,} (assumed)" if agent.window_from == WindowOrigin.UNKNOWN else f"{agent.window:,}"


def draw_agent(agent: AgentOut) -> Text:
    """Return the agent in the form of an agent file, without its system prompt."""
    shown: dict[str, JsonValue] = {
        "name": agent.name,
        "description": agent.description,
        "model": agent.model or "(the setting DEFAULT_LLM)",
        "window": agent.window,
        "window_from": WINDOW_FROM.get(agent.window_from, agent.window_from),
        "tools": list(agent.tools),
        "mcp_servers": list(agent.mcp_servers),
        "max_tool_rounds": agent.max_tool_rounds,
        "max_client_rounds": agent.max_client_rounds,
        "reasoning": agent.reasoning,
        "parameters": agent.parameters,
        "daily_budget": agent.daily_budget,
        "overrides": list(agent.overrides),
        "override_models": list(agent.override_models),
        "context": agent.context,
    }
    return Text("\n".join(_lines(shown, "")))


def _lines(values: Mapping[str, JsonValue], indent: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{printable(name)}:"
            yield from _lines(value, indent + INDENT)
        else:
            yield f"{indent}{printable(name)}: {_written(value)}".rstrip()


def _written(value: JsonValue) -> str:
    match value:
        case None | "" | [] | {}:
            return ""
        case list():
            return f"[{', '.join(_written(item) for item in value)}]"
        case bool():
            return str(value).lower()
        case _:
            return printable(str(value)).replace("\n", " ")


DEFAULT_AGENT = "assistant"


@click.command("chat")
@click.argument("agent", required=False)
@click.option(
    "--session", "session_id", callback=check_id, help="Continue this session: its id, or the first characters."
)
@target_options
@asynchronous
async def chat_command(agent: str | None, session_id: str | None, target: ServiceTarget) -> None:
    """Chat with AGENT (default: assistant), or continue a session.

    At a terminal, the chat has line editing and history. Lines from a pipe are sent one by one until the first error:
    the remaining lines are not sent, and the exit code is 1. /help lists the commands.
    """
    screen, lines = Screen(), target.dependencies.standard_input_lines()
    async with open_client(target, takes_turns=True) as client:
        state = await _begin(client, screen, agent, session_id)
        if lines.is_terminal:
            screen.note(f"chatting with {state.agent}; /help lists the commands, /quit or Ctrl-D leaves")
        await chat(state, lines)
        if lines.is_terminal and state.session is not None:
            screen.note("continue with:", command=f"throughline chat --session {state.session.id}{target.options}")


class _AgentsGroup(click.Group):
    """Command group in which any other word than a command's name is the name of an agent to show."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_command = bool(args) and (args[0] in self.commands or args[0] in {"-h", "--help"})
        return super().parse_args(ctx, args if is_command else ["show", *args])


@click.command("show", hidden=True)
@click.argument("name", required=False)
@target_options
@asynchronous
async def show_agents(name: str | None, target: ServiceTarget) -> None:
    """List the agents available for chats, or show the agent NAME with its parameters and its context policy.

    The servers of tools that NAME names are connected, as by `throughline mcp check`, and their tools shown with
    descriptions and parameters. A service at --url shows only their names.
    """
    async with open_client(target) as client:
        agents = await client.agents()
    if name is None:
        _list_agents(Screen(), agents)
        return
    found = next((agent for agent in agents if agent.name == name), None)
    if found is None:
        raise _no_agent(name, agents)
    screen = Screen()
    screen.draw(draw_agent(found))
    if found.mcp_servers and target.url is None:
        await show_served_tools(screen, target.dependencies, name)
    elif found.mcp_servers:
        screen.note(
            "its servers are not asked from here; where the service runs:", command=f"throughline agents {name}"
        )


agents_command = _AgentsGroup(
    "agents",
    commands=[show_agents, new_agent],
    help="List the agents available for chats; `agents NAME` shows one, `agents new NAME` writes one.",
)


async def _begin(client: ServiceClient, screen: Screen, agent: str | None, session_id: str | None) -> ChatState:
    if session_id is None:
        return ChatState(client, screen, await _known_agent(client, agent or DEFAULT_AGENT))
    session = await client.session(await whole_id(client, screen, session_id))
    if agent not in {None, session.agent}:
        raise click.UsageError(f"Session {session.id} belongs to the agent {session.agent}, not {agent}.")
    screen.say(in_history(session, await client.summary_ready(session.id)))
    return ChatState(client, screen, session.agent, session=session)


async def _known_agent(client: ServiceClient, name: str) -> str:
    """Return `name`. Raises InvalidInput if the service has no such agent, before the user types anything."""
    agents = await client.agents()
    if name not in {agent.name for agent in agents}:
        raise _no_agent(name, agents)
    return name


def _no_agent(name: str, agents: tuple[AgentOut, ...]) -> InvalidInput:
    known = ", ".join(sorted(agent.name for agent in agents))
    return InvalidInput(f"There is no agent {one_line(name, limit=60)!r}. The service has: {known}.")


def _list_agents(screen: Screen, agents: tuple[AgentOut, ...]) -> None:
    screen.draw(_agents_table(agents))
    if any(agent.window_from == WindowOrigin.UNKNOWN for agent in agents):
        screen.warn("assumed: nothing says what the model takes; set context.window in the agent file")


def _agents_table(agents: tuple[AgentOut, ...]) -> Table:
    table = Table("Agent", "Model", "Window", "Tools", "Description", box=None, pad_edge=False)
    for agent in agents:
        cells = (agent.name, agent.model or "default", drawn_window(agent), ", ".join(agent.tools), agent.description)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
