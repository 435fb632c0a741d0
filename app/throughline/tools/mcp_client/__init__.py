"""The MCP client: connections to MCP servers, whose tools agents use.

`connections.py` is used by the service. The modules that need the package `mcp` are imported with the first
server.
"""
