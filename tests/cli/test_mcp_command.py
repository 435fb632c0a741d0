"""What the command line shows of servers of tools: `mcp check`, `agents NAME` and `status`."""

import json
import socket
from dataclasses import replace

import pytest
from click.testing import Result

from fakes.command_stage import IDLE_SERVICE, CommandStage, FakeWorld
from fakes.stage import AGENT
from fakes.tool_servers import served
from throughline.agents.registry import AgentRegistry
from throughline.domain.tool_server import ListChange, ServedTools, ServerReport, ServerState, ToolServer

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


SERVED = {"agents": AgentRegistry([replace(AGENT, name="developer", mcp_servers=(FILES, WEB))])}


@pytest.mark.parametrize("dependencies", [SERVED])
async def test_an_agent_is_shown_with_the_tools_of_its_servers(service: CommandStage) -> None:
    tools = [served(FILES, "read", is_repeatable=True), served(FILES, "write", needs_approval=True)]
    service.world.servers = ((FILES, WEB), ServedTools(tools, {"web": "does not answer"}))

    shown = await service.run("agents", "developer")

    assert "mcp_servers: [files, web]" in shown.stdout
    assert 'files__read (may be repeated)\n  Play read.\n  parameters: {"type": "object"}' in shown.stdout
    assert "files__write (need approval, are not repeated)" in shown.stdout
    assert "web: does not answer" in shown.stderr


@pytest.mark.parametrize("dependencies", [SERVED])
async def test_the_servers_of_a_service_elsewhere_are_not_asked(service: CommandStage) -> None:
    service.world.servers = ((FILES,), ServedTools([served(FILES, "read")]))
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with service.api.serving(listener):
        shown = await service.run("agents", "developer", "--url", url)

    assert "mcp_servers: [files, web]" in shown.stdout
    assert "files__read" not in shown.stdout
    assert "throughline agents developer" in shown.stderr


REPORTS = (
    ServerReport(
        "files",
        ServerState.CONNECTED,
        ("a", "b"),
        tools=12,
        protocol="2026-07-28",
        listed_seconds_ago=75,
        problems=("it is odd",),
        last_change=ListChange(2, 1, 0, 5.0),
    ),
    ServerReport("mail", ServerState.FAILED, ("a",), reason="its program ended"),
)


def test_the_status_shows_servers_with_what_is_wrong_with_them() -> None:
    shown = FakeWorld(status=replace(IDLE_SERVICE, tool_servers=REPORTS)).run("status")

    lines = [line.rstrip() for line in shown.stdout.splitlines()]
    assert lines[-5].split() == ["files", "a,", "b", "connected", "12", "2026-07-28", "1m", "15s", "ago"]
    assert lines[-4].split() == ["mail", "a", "failed", "–", "–", "–"]
    assert lines[-3:] == [
        "files: it is odd",
        "files: its tools changed 5s ago: 2 added, 1 removed, 0 changed",
        "mail: its program ended",
    ]


def test_servers_are_in_the_json_of_the_status() -> None:
    shown = FakeWorld(status=replace(IDLE_SERVICE, tool_servers=REPORTS)).run("status", "--json")

    files, mail = json.loads(shown.stdout)["tool_servers"]
    assert (files["agents"], files["tools"], files["last_change"]["added"]) == (["a", "b"], 12, 2)
    assert (mail["state"], mail["reason"], mail["last_change"]) == ("failed", "its program ended", None)
