"""The servers of tools that agents use: their connections in a process, and the check of an agent's servers."""

from throughline.assembly.database import read_quiet_settings
from throughline.assembly.env_file import prepare_environment
from throughline.assembly.models import load_configured_agents
from throughline.cli.dependencies import LocalOptions
from throughline.domain.tool_server import ServedTools, ToolServer
from throughline.settings import read_variable
from throughline.tools.make_function_tool import MAX_TOOL_RESULT_BYTES
from throughline.tools.mcp_client.bounds import Bounds
from throughline.tools.mcp_client.connections import McpConnections

CHECK_SECONDS = 60.0
"""How long a check waits for a server, whose program may have to be downloaded first."""


def open_tool_servers(bounds: Bounds | None = None) -> McpConnections:
    """Return the connections to servers of tools, none of which is made yet; they end with the context."""
    return McpConnections(read_variable, MAX_TOOL_RESULT_BYTES, bounds=bounds)


async def check_servers_of(agent: str) -> tuple[tuple[ToolServer, ...], ServedTools]:
    """Return the servers that the agent names, and the tools that it gets. Raises NotFound for an unknown agent."""
    settings = read_quiet_settings(LocalOptions())
    prepare_environment()
    found = load_configured_agents(settings).get(agent)
    own = {name.rpartition(":")[2] for name in found.tools}  # functions have the name of their attribute
    async with open_tool_servers(Bounds(wait_seconds=CHECK_SECONDS)) as connections:
        return found.mcp_servers, (await connections.tools_of(found.mcp_servers)).without(own)
