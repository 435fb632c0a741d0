"""A client of the MCP server that writes its messages itself: of revision 2026-07-28, or of one with a handshake."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import jsonschema_rs

from throughline.mcp_server.protocol import META_CAPABILITIES, META_REVISION, NAMED_BY, STATELESS, TASKS

MCP_PATH = "/mcp"
WITH_TASKS: Mapping[str, object] = {"extensions": {TASKS: {}}}


def headers_of(method: str, params: Mapping[str, object]) -> dict[str, str]:
    """Return the headers with which a client of revision 2026-07-28 sends a request."""
    named = {"Mcp-Name": str(params[NAMED_BY[method]])} if method in NAMED_BY else {}
    return {"MCP-Protocol-Version": STATELESS, "Mcp-Method": method, **named}


@dataclass
class McpClient:
    """Sends messages over `http`. `revision`: '' sends no header, as clients do before the handshake."""

    http: httpx.AsyncClient
    revision: str = STATELESS
    capabilities: Mapping[str, object] = field(default_factory=dict)

    async def send(self, method: str, /, **params: object) -> httpx.Response:
        """Send a request and return the whole answer."""
        if self.revision == STATELESS:
            meta = {META_REVISION: STATELESS, META_CAPABILITIES: self.capabilities}
            return await self.post({"_meta": meta, **params}, method, headers_of(method, params))
        return await self.post(params, method, {"MCP-Protocol-Version": self.revision} if self.revision else {})

    async def post(
        self, params: Mapping[str, object], method: str, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return await self.http.post(MCP_PATH, json=body, headers=headers)

    async def result(self, method: str, /, **params: object) -> Any:  # noqa: ANN401  # as each method has it
        """Return the result of a request that succeeds."""
        response = await self.send(method, **params)
        assert response.status_code == httpx.codes.OK, response.text
        assert response.json()["id"] == 7
        return response.json()["result"]

    async def error(self, method: str, /, **params: object) -> Any:  # noqa: ANN401  # JSON
        """Return the error of a request that fails."""
        return (await self.send(method, **params)).json()["error"]

    async def call(self, tool: str, /, **arguments: object) -> Any:  # noqa: ANN401  # as each tool has it
        """Return the result of a tool; its values must fit the schema that the tool is listed with."""
        result = await self.result("tools/call", name=tool, arguments=arguments)
        if "structuredContent" in result:
            listed = {one["name"]: one for one in (await self.result("tools/list"))["tools"]}
            jsonschema_rs.validate(listed[tool]["outputSchema"], result["structuredContent"])
        return result

    async def values(self, tool: str, /, **arguments: object) -> Any:  # noqa: ANN401  # as each tool has it
        """Return the values of a tool that succeeds."""
        result = await self.call(tool, **arguments)
        assert not result["isError"], result
        return result["structuredContent"]

    async def refusal(self, tool: str, /, **arguments: object) -> str:
        """Return the text of a tool that fails."""
        result = await self.call(tool, **arguments)
        assert result["isError"], result
        return str(result["content"][0]["text"])
