"""The official client of the MCP SDK against the server, over a real socket."""

from typing import Any

import pytest

from fakes.api_stage import ApiStage
from fakes.mcp_client import MCP_PATH

mcp_client = pytest.importorskip("mcp.client.client", reason="needs the extra `mcp`, version 2")
httpx2 = pytest.importorskip("httpx2")
transport = pytest.importorskip("mcp.client.streamable_http")


async def structured(client: Any, tool: str, **arguments: object) -> Any:  # noqa: ANN401  # the SDK may be absent
    """Return the values of a tool. The client compares them with the tool's schema."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.structured_content


@pytest.mark.parametrize(("mode", "revision"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_the_official_client_uses_everything(keyed: ApiStage, mode: str, revision: str) -> None:
    key = {"Authorization": f"Bearer {await keyed.key('anna')}"}
    async with keyed.served() as http, httpx2.AsyncClient(headers=key) as authorized:
        connection = transport.streamable_http_client(str(http.base_url.join(MCP_PATH)), http_client=authorized)
        async with mcp_client.Client(connection, mode=mode) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            asked = await structured(client, "ask_agent", message="the gateway port is 8443")
            session_id = asked["session_id"]
            found = await structured(client, "search_history", q="gateway")
            await structured(client, "read_messages", session_id=session_id)
            await structured(client, "get_run", run_id=asked["run_id"])
            await structured(client, "get_context", session_id=session_id)
            sessions = await structured(client, "list_sessions")
            resource = (await client.list_resources()).resources[0]
            read = await client.read_resource(resource.uri)
            agreed = client.protocol_version
            refused = await client.call_tool("read_messages", {"session_id": "nonsense"})

    assert agreed == revision
    assert tools == {"ask_agent", "get_run", "search_history", "read_messages", "list_sessions", "get_context"}
    assert asked["answer"] == "Hello back."
    assert found["messages"][0]["session_id"] == sessions["data"][0]["id"] == session_id
    assert "8443" in read.contents[0].text
    assert refused.is_error
