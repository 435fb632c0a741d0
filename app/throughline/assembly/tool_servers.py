"""The servers of tools that agents use: their connections in a process, and the check of an agent's servers."""

from throughline.assembly.database import read_quiet_settings
from throughline.assembly.env_file import prepare_environment
from throughline.assembly.models import load_configured_agents
from throughline.cli.dependencies import LocalOptions
from throughline.domain.tool_server import ServedTools, ToolServer
from throughline.settings import read_variable
from throughline.tools.make_function_tool import MAX_TOOL_RESULT_BYTES
from throughline.tools.mcp.servers import McpServers


def open_tool_servers() -> McpServers:
    """Return the connections to servers of tools, none of which is made yet; they end with the context."""
    return McpServers(read_variable, MAX_TOOL_RESULT_BYTES)


async def check_servers_of(agent: str) -> tuple[tuple[ToolServer, ...], ServedTools]:
    """Return the servers that the agent names, and their tools. Raises NotFound for an unknown agent."""
    settings = read_quiet_settings(LocalOptions())
    prepare_environment()
    servers = load_configured_agents(settings).get(agent).mcp_servers
    async with open_tool_servers() as connections:
        return servers, await connections.tools_of(servers)
