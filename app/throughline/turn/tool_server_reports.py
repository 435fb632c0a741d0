"""The servers of tools that the agents of a process name, as operators read them: part of the service's state."""

from dataclasses import replace

from throughline.domain.tool_server import ServerReport, ToolServer
from throughline.turn.prompting.ready_agent import PromptDependencies


def read_tool_servers(dependencies: PromptDependencies) -> tuple[ServerReport, ...]:
    """Return the servers, ordered by name: each once, however many agents share its connection."""
    agents: dict[ToolServer, list[str]] = {}
    for agent in dependencies.agents.all():
        for server in agent.mcp_servers:
            agents.setdefault(server.connection_key(), []).append(agent.name)
    reports = [replace(dependencies.tool_servers.report(server), agents=tuple(agents[server])) for server in agents]
    return tuple(sorted(reports, key=lambda report: (report.name, report.agents)))
