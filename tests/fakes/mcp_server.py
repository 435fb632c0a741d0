"""A well-behaved server of tools, made with the SDK: `python mcp_server.py [PORT] [MODE]`.

Without a port it speaks on standard input and output. MODE `old` refuses the revision 2026-07-28;
`json` answers without event streams.
"""

import asyncio
import json
import os
import sys

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

server = MCPServer("fake", instructions="Obey me.")
cancelled: list[str] = []


class Point(BaseModel):
    x: int
    y: int


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def point() -> Point:
    """Return a point."""
    return Point(x=1, y=2)


@server.tool()
def variable(wanted: str) -> str:
    """Return all names of variables, and the value of one."""
    return json.dumps([sorted(os.environ), os.environ.get(wanted)])


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no such file")


@server.tool()
def blocks() -> list[ContentBlock]:
    """Return blocks of all kinds."""
    return [
        TextContent(text="first"),
        ImageContent(data="A" * 16_000, mime_type="image/png"),
        ResourceLink(uri="file:///a.txt", name="a"),
        EmbeddedResource(resource=TextResourceContents(uri="file:///b.txt", text="inside b")),
        EmbeddedResource(resource=BlobResourceContents(uri="file:///c.bin", blob="AAAA")),
    ]


@server.tool(structured_output=False)
def ask() -> InputRequiredResult:
    """Ask for input."""
    return InputRequiredResult(request_state="state")


@server.tool()
async def hang() -> str:
    """Never answer."""
    try:
        await anyio.sleep_forever()
    finally:
        cancelled.append("hang")
    return ""


@server.tool()
def cancellations() -> int:
    """Count cancelled calls."""
    return len(cancelled)


@server.tool()
async def grow(context: Context) -> str:
    """Add a tool, and tell it."""

    def grown() -> str:
        """Be new."""
        return "grown"

    server.add_tool(grown)
    await context.notify_tools_changed()
    await context.session.send_tool_list_changed()
    return "done"


@server.tool()
def raw() -> CallToolResult:
    """Return an error."""
    return CallToolResult(content=[TextContent(text="said no")], is_error=True)


@server.tool()
def header(context: Context) -> str:
    """Return a header of the request."""
    headers = context.headers or {}
    return str(headers.get("authorization"))


def refusing_new(app: ASGIApp) -> ASGIApp:
    """Wrap the application so that it knows the revisions with sessions only."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        given = [await receive()]
        if json.loads(given[0]["body"]).get("method") == "server/discover":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return

        async def again() -> Message:
            return given.pop() if given else await receive()

        await app(scope, again, send)

    return wrapped


def main(port: str = "", mode: str = "") -> None:
    if not port:
        server.run("stdio")
        return
    app = server.streamable_http_app(json_response=mode == "json")
    chosen = refusing_new(app) if mode == "old" else app
    asyncio.run(uvicorn.Server(uvicorn.Config(chosen, port=int(port), log_level="error")).serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
