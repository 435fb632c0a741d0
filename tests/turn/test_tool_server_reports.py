"""The servers of tools that operators read: each connection once, with the agents that use it."""

from dataclasses import replace

from fakes.stage import AGENT, Stage
from fakes.tool_servers import PlayedServers, served
from throughline.domain.tool_server import ServerState, ToolServer
from throughline.turn.tool_server_reports import read_tool_servers

FILES, MAIL = ToolServer("files", ("files",)), ToolServer("mail", ("mail",))


async def test_agents_that_share_a_connection_are_told_together(stage: Stage) -> None:
    stage.dependencies = replace(
        stage.dependencies, tool_servers=PlayedServers({"files": [served(FILES, "read"), served(FILES, "write")]})
    )
    stage.dependencies.agents.replace_all([
        replace(AGENT, name="one", mcp_servers=(MAIL, FILES)),
        replace(AGENT, name="two", mcp_servers=(replace(FILES, tools=("read",), timeout_seconds=5.0),)),
        replace(AGENT, name="three", mcp_servers=(replace(FILES, command=("other",)),)),
    ])

    found = read_tool_servers(stage.dependencies)

    assert [(report.name, report.agents, report.state, report.tools) for report in found] == [
        ("files", ("one", "two"), ServerState.CONNECTED, 2),
        ("files", ("three",), ServerState.CONNECTED, 2),
        ("mail", ("one",), ServerState.FAILED, None),
    ]


async def test_agents_without_servers_have_no_report(stage: Stage) -> None:
    assert read_tool_servers(stage.dependencies) == ()
