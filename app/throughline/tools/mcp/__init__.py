"""Tools of servers that are used by the Model Context Protocol (MCP).

`servers.py` is used by the service. The other modules that need the package `mcp` are imported with the first server.
"""
