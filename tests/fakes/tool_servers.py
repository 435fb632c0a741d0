"""Servers of tools that are played, in place of those that agents reach by the Model Context Protocol."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.domain.tool_server import ServedTool, ServedTools, ToolServer

OPEN_SCHEMA = {"type": "object"}


def served(server: ToolServer, name: str, *, is_repeatable: bool = False, needs_approval: bool = False) -> ServedTool:
    """Return a tool of the server that takes anything."""
    spec = ToolSpec(f"{server.name}__{name}", f"Play {name}.", OPEN_SCHEMA)
    return ServedTool(server, name, spec, is_repeatable=is_repeatable, needs_approval=needs_approval)


@dataclass
class PlayedServers:
    """Tools of servers by the server's name; servers that are not here are away. `called` has each call."""

    tools: dict[str, list[ServedTool]] = field(default_factory=dict)
    answer: Callable[[ServedTool, str], ToolOutcome] = lambda tool, _: ToolOutcome(f"{tool.name} was played")
    called: list[tuple[str, str]] = field(default_factory=list)

    async def tools_of(self, servers: Sequence[ToolServer]) -> ServedTools:
        known = [tool for server in servers for tool in self.tools.get(server.name, ())]
        return ServedTools(known, {server.name: "is away" for server in servers if server.name not in self.tools})

    async def call(self, tool: ServedTool, arguments: str, _context: ToolContext) -> ToolOutcome:
        self.called.append((tool.name, arguments))
        return self.answer(tool, arguments)
