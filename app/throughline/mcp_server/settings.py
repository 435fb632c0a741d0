"""The setting of the MCP server."""

from typing import ClassVar

from pydantic import Field

from throughline.ports.front_end import FrontEndSection


class McpServerSettings(FrontEndSection):
    """MCP server: agents and the history as tools of other programs."""

    subject: ClassVar[str] = "MCP server"

    mcp_server: bool = Field(
        default=True,
        description="Serve MCP clients at /mcp, with the keys and access tokens of the REST interface.",
    )
