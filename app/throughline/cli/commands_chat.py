"""The commands `throughline chat` and `throughline agents`."""

import click
from rich.table import Table
from rich.text import Text

from throughline.cli.agent_view import draw_agent, drawn_window
from throughline.cli.chat import chat
from throughline.cli.chat_state import ChatState, in_history
from throughline.cli.client import ServiceClient
from throughline.cli.connection import Target, asynchronous, open_client, target_options
from throughline.cli.new_agent import new_agent
from throughline.cli.printable import one_line, printable
from throughline.cli.screen import Screen
from throughline.cli.session_ids import check_id, whole_id
from throughline.domain.errors import InvalidInput
from throughline.domain.model_window import WindowOrigin
from throughline.wire.service import AgentOut

DEFAULT_AGENT = "assistant"


@click.command("chat")
@click.argument("agent", required=False)
@click.option(
    "--session", "session_id", callback=check_id, help="Continue this session: its id, or the first characters."
)
@target_options
@asynchronous
async def chat_command(agent: str | None, session_id: str | None, target: Target) -> None:
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
async def show_agents(name: str | None, target: Target) -> None:
    """List the agents available for chats, or show the agent NAME with its parameters and its context policy."""
    async with open_client(target) as client:
        agents = await client.agents()
    if name is None:
        _list_agents(Screen(), agents)
        return
    found = next((agent for agent in agents if agent.name == name), None)
    if found is None:
        raise _no_agent(name, agents)
    Screen().draw(draw_agent(found))


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
    screen.say(in_history(session))
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
