"""The service as an MCP server: programs that use tools ask its agents and search its history."""

from throughline.ports.front_end import FrontEndParts

PARTS = FrontEndParts(routes="front_end:MCP", settings="settings:McpServerSettings")
