"""Messages of MCP in both kinds of revisions: what is answered, and what is refused and how."""

import base64
from dataclasses import replace

import httpx
import pytest

from fakes.api_stage import LOCAL, set_stage
from fakes.mcp_client import MCP_PATH, McpClient, headers_of
from throughline.assembly.front_ends import settings_sections
from throughline.db.database import Database
from throughline.mcp_server.front_end import MCP
from throughline.mcp_server.protocol import META_CAPABILITIES, META_REVISION, REVISIONS, STATELESS, WITH_HANDSHAKE
from throughline.mcp_server.settings import McpServerSettings

META = {META_REVISION: STATELESS, META_CAPABILITIES: {}}
LISTING = headers_of("tools/list", {})


@pytest.mark.parametrize(
    ("wanted", "agreed"),
    [(one, one) for one in WITH_HANDSHAKE] + [(STATELESS, "2025-11-25"), ("1999-01-01", "2025-11-25")],
)
async def test_a_handshake_agrees_on_a_revision_and_makes_no_session(
    client: McpClient, wanted: str, agreed: str
) -> None:
    old = replace(client, revision="")

    response = await old.send("initialize", protocolVersion=wanted, capabilities={}, clientInfo={"name": "c"})

    result = response.json()["result"]
    assert result["protocolVersion"] == agreed
    assert result["capabilities"] == {"tools": {}, "resources": {}}
    assert result["serverInfo"]["name"] == "throughline"
    assert "mcp-session-id" not in response.headers


async def test_a_handshake_without_a_revision_is_refused(client: McpClient) -> None:
    error = await replace(client, revision="").error("initialize", capabilities={})

    assert error["code"] == -32602


@pytest.mark.parametrize("revision", WITH_HANDSHAKE)
async def test_revisions_with_a_handshake_list_tools_and_answer_pings(client: McpClient, revision: str) -> None:
    old = replace(client, revision=revision)

    tools = (await old.result("tools/list"))["tools"]

    assert await old.result("ping") == {}
    assert {tool["name"] for tool in tools} > {"ask_agent", "search_history"}


async def test_the_stateless_revision_is_discovered(client: McpClient) -> None:
    result = await client.result("server/discover")

    assert result["supportedVersions"] == list(REVISIONS)
    assert result["resultType"] == "complete"
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["version"] == "0.0.0"
    assert (result["ttlMs"], result["cacheScope"]) == (60_000, "private")


async def test_tools_say_what_they_do_and_name_the_agents(client: McpClient) -> None:
    tools = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}

    assert "assistant" in tools["ask_agent"]["description"]
    assert not tools["ask_agent"]["annotations"]["readOnlyHint"]
    assert all(tool["annotations"]["readOnlyHint"] for name, tool in tools.items() if name != "ask_agent")
    assert all(tool[part]["type"] == "object" for tool in tools.values() for part in ("inputSchema", "outputSchema"))


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_there_is_no_stream_to_open_and_no_session_to_end(client: McpClient, method: str) -> None:
    response = await client.http.request(method, MCP_PATH)

    assert response.status_code == httpx.codes.METHOD_NOT_ALLOWED
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("headers", [{}, {"MCP-Protocol-Version": "2025-06-18"}, {"MCP-Protocol-Version": STATELESS}])
async def test_notifications_are_accepted(client: McpClient, headers: dict[str, str]) -> None:
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}

    response = await client.http.post(MCP_PATH, json=told, headers=headers)

    assert (response.status_code, response.content) == (httpx.codes.ACCEPTED, b"")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b"[" * 100, -32600),
        (b"[]", -32600),
        (b"7", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    ],
)
async def test_a_malformed_message_is_refused_with_its_code(client: McpClient, body: bytes, code: int) -> None:
    response = await client.http.post(MCP_PATH, content=body, headers={"Content-Type": "application/json"})

    assert response.status_code == httpx.codes.BAD_REQUEST
    assert response.json()["error"]["code"] == code


async def test_bodies_have_the_limits_of_the_service(database: Database) -> None:
    config = replace(LOCAL, max_body_bytes=1_000)
    small = set_stage(database, config).with_front_ends(config, MCP)
    async with small.client() as http:
        large = await http.post(MCP_PATH, json={"jsonrpc": "2.0", "id": 1, "method": "x" * 1_000})
        text = await http.post(MCP_PATH, content=b"{}", headers={"Content-Type": "text/plain"})

    assert large.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE
    assert text.status_code == httpx.codes.UNSUPPORTED_MEDIA_TYPE


@pytest.mark.parametrize(
    ("params", "headers", "code"),
    [
        ({}, LISTING, -32602),
        ({"_meta": 7}, LISTING, -32602),
        ({"_meta": {META_REVISION: STATELESS}}, LISTING, -32602),
        ({"_meta": {META_CAPABILITIES: {}}}, LISTING, -32602),
        ({"_meta": {META_REVISION: STATELESS, META_CAPABILITIES: 7}}, LISTING, -32602),
        ({"_meta": META}, {}, -32020),
        ({"_meta": META}, {**LISTING, "MCP-Protocol-Version": "2025-06-18"}, -32020),
        ({"_meta": META}, {**LISTING, "Mcp-Method": "tools/call"}, -32020),
        ({"_meta": {**META, META_REVISION: 7}}, LISTING, -32020),
        ({"_meta": {**META, META_REVISION: "2031-01-01"}}, {**LISTING, "MCP-Protocol-Version": "2031-01-01"}, -32022),
        ({}, {"MCP-Protocol-Version": "2031-01-01"}, -32022),
    ],
)
async def test_a_stateless_request_that_contradicts_itself_is_refused(
    client: McpClient, params: dict[str, object], headers: dict[str, str], code: int
) -> None:
    response = await client.post(params, "tools/list", headers)

    assert response.status_code == httpx.codes.BAD_REQUEST
    assert response.json()["id"] == 7
    assert response.json()["error"]["code"] == code


async def test_an_unknown_revision_is_answered_with_those_that_are_served(client: McpClient) -> None:
    response = await client.post({}, "tools/list", {"MCP-Protocol-Version": "2031-01-01"})

    assert response.json()["error"]["data"] == {"supported": list(REVISIONS), "requested": "2031-01-01"}


async def test_a_header_that_is_sent_twice_is_refused(client: McpClient) -> None:
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": META}}

    response = await client.http.post(MCP_PATH, json=body, headers=[*LISTING.items(), ("Mcp-Method", "tools/list")])

    assert response.json()["error"]["code"] == -32020


@pytest.mark.parametrize(
    ("name", "is_served"),
    [
        ("list_sessions", True),
        (" list_sessions ", True),
        (f"=?base64?{base64.b64encode(b'list_sessions').decode()}?=", True),
        ("=?base64?!?=", False),
        ("=?base64?/w==?=", False),
        ("ask_agent", False),
        (None, False),
    ],
)
async def test_the_header_names_the_tool(client: McpClient, name: str | None, *, is_served: bool) -> None:
    headers = headers_of("tools/call", {"name": ""}) | {"Mcp-Name": name or ""}
    if name is None:
        del headers["Mcp-Name"]

    response = await client.post({"_meta": META, "name": "list_sessions"}, "tools/call", headers)

    assert response.is_success is is_served
    assert is_served or response.json()["error"]["code"] == -32020


@pytest.mark.parametrize("method", ["initialize", "ping", "prompts/list", "nothing"])
async def test_a_method_that_a_revision_lacks_is_not_found(client: McpClient, method: str) -> None:
    stateless = await client.send(method)
    old = await replace(client, revision="2025-06-18").send("server/discover")

    assert (stateless.status_code, stateless.json()["error"]["code"]) == (httpx.codes.NOT_FOUND, -32601)
    assert (old.status_code, old.json()["error"]["code"]) == (httpx.codes.OK, -32601)


async def test_pages_of_other_machines_are_refused(client: McpClient) -> None:
    client.http.headers["Origin"] = "https://evil.example"

    response = await client.send("tools/list")

    assert response.status_code == httpx.codes.FORBIDDEN


async def test_the_document_of_the_rest_interface_says_where_the_server_is(client: McpClient) -> None:
    document = (await client.http.get("/openapi.json")).json()

    assert MCP_PATH not in document["paths"]
    assert f"`POST {MCP_PATH}`" in document["info"]["description"]


def test_a_setting_turns_the_server_off() -> None:
    assert McpServerSettings in settings_sections()
    assert MCP.is_on(McpServerSettings())
    assert not MCP.is_on(McpServerSettings(mcp_server=False))
