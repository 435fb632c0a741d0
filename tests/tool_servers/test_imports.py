"""A service without servers of tools imports nothing for them."""

import os
import subprocess
import sys

PROGRAM = """
import sys
from throughline.tools.mcp_client.connections import McpConnections
print(*sorted({"anyio", "httpx2", "mcp", "mcp_types"} & set(sys.modules)))
"""
WITHOUT = """
import asyncio, sys
sys.modules["mcp"] = None
from throughline.domain.tool_server import ToolServer
from throughline.tools.mcp_client.connections import McpConnections

async def main():
    async with McpConnections(lambda name: "", 1_000) as servers:
        print((await servers.tools_of([ToolServer("files", command=("x",))])).problems["files"])

asyncio.run(main())
"""


def run(program: str) -> str:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_nothing_of_the_sdk_is_imported_before_the_first_server() -> None:
    assert run(PROGRAM) == ""


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    assert run(WITHOUT) == "MCP needs a package that is not installed: run `pip install 'throughline[mcp]'`"
