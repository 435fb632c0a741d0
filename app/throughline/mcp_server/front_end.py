"""The MCP server as a front end: its one route."""

from typing import cast

from throughline.http.app import FrontEnd
from throughline.mcp_server import routes
from throughline.mcp_server.settings import McpServerSettings

MCP = FrontEnd(
    "MCP clients call `POST /mcp`, which lists its tools itself (`tools/list`) and has no OpenAPI document.",
    (routes.router,),
    lambda _app, _config: None,
    is_on=lambda settings: cast("McpServerSettings", settings).mcp_server,
)
