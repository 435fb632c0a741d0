"""`throughline mcp check`: what the servers of tools offer that an agent names."""

from click.testing import Result

from fakes.command_stage import FakeWorld
from fakes.tool_servers import served
from throughline.domain.tool_server import ServedTools, ToolServer

FILES, WEB = ToolServer("files", ("mcp-files", "/srv")), ToolServer("web", url="https://mcp.example/mcp")


def check(servers: tuple[ToolServer, ...], found: ServedTools) -> Result:
    return FakeWorld(servers=(servers, found)).run("mcp", "check", "developer")


def test_the_tools_of_each_server_are_printed() -> None:
    tools = [served(FILES, "read", is_repeatable=True), served(FILES, "write", needs_approval=True)]

    told = check((FILES, WEB), ServedTools(tools))

    assert told.exit_code == 0
    assert "files: mcp-files /srv: tools: 2" in told.output
    assert "web: https://mcp.example/mcp: tools: 0" in told.output
    rows = [line.split(maxsplit=1) for line in told.output.splitlines() if line.startswith("files__")]
    assert [name for name, _ in rows] == ["files__read", "files__write"]
    assert [row.startswith(calls) for (_, row), calls in zip(rows, ("may be repeated", "need approval"), strict=True)]


def test_a_server_that_cannot_be_used_fails_the_check() -> None:
    told = check((WEB,), ServedTools((), {"web": "does not answer"}))

    assert told.exit_code == 1
    assert "web: does not answer" in told.output


def test_an_agent_without_servers_is_told() -> None:
    told = check((), ServedTools())

    assert told.exit_code == 0
    assert "names no servers" in told.output
