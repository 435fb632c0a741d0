"""A well-behaved server of tools, made with the SDK: `python mcp_server.py [PORT] [MODE]`.

Without a port, or with an empty one, it speaks on standard input and output. MODE `old` refuses the revision
2026-07-28; `json` answers without event streams.
"""

import asyncio
import base64
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import anyio
import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ErrorData,
    ImageContent,
    InputRequiredResult,
    JSONRPCError,
    JSONRPCRequest,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

server = MCPServer("fake", instructions="Obey me.")
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(11_992)).decode()
cancelled: list[str] = []
made: list[str] = []


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
        ImageContent(data=PICTURE, mime_type="image/png"),
        ResourceLink(uri="file:///a.txt", name="a"),
        EmbeddedResource(resource=TextResourceContents(uri="file:///b.txt", text="inside b")),
        EmbeddedResource(resource=BlobResourceContents(uri="file:///c.bin", blob="AAAA")),
    ]


class Place(BaseModel):
    city: str
    seats: int = Field(ge=1)


class Sure(BaseModel):
    sure: bool


def which_place() -> Elicit[Place]:
    return Elicit("Where?", Place)


def is_sure(place: Annotated[Place, Resolve(which_place)]) -> Elicit[Sure]:
    return Elicit(f"Really {place.city}?", Sure)


@server.tool(structured_output=False)
def book(place: Annotated[Place, Resolve(which_place)], sure: Annotated[Sure, Resolve(is_sure)]) -> str:
    """Book seats, after two questions."""
    made.append("book")
    return f"{place.seats} in {place.city}, sure: {sure.sure}, call {len(made)}"


@server.tool(structured_output=False)
async def steps(context: Context) -> str:
    """Tell progress."""
    for done in (1, 2, 2, 3):
        await context.report_progress(done, 3, f"step {done}")
    return "done"


@server.tool(structured_output=False)
async def half(context: Context) -> str:
    """Tell progress, and never end."""
    await context.report_progress(1, 2, "half of it")
    await anyio.sleep_forever()
    return ""


@server.tool(structured_output=False)
def comes_back(context: Context) -> InputRequiredResult | str:
    """Want to be called again, without a question."""
    return "came back" if context.request_state else InputRequiredResult(request_state="state")


@server.tool()
async def hang() -> str:
    """Never answer."""
    try:
        await anyio.sleep_forever()
    finally:
        cancelled.append("hang")
    return ""


async def first_hangs(log: str) -> str:
    """Add a line to the file; never answer if it is the first one."""
    with Path(log).open("a+") as file:  # noqa: ASYNC230  # a few bytes
        file.write("called\n")
        file.seek(0)
        calls = len(file.readlines())
    if calls == 1:
        await anyio.sleep_forever()
    return "done"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def read_slowly(log: str) -> str:
    """Answer the second call."""
    return await first_hangs(log)


@server.tool()
async def write_slowly(log: str) -> str:
    """Answer the second call."""
    return await first_hangs(log)


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


async def serve_old() -> None:
    """Speak on standard input and output, without the revision 2026-07-28."""
    async with stdio_server() as (received, answers), anyio.create_task_group() as tasks:
        passed, to_server = anyio.create_memory_object_stream[SessionMessage | Exception](10)

        async def run() -> None:
            await low.run(to_server, answers, low.create_initialization_options())

        low = server._lowlevel_server  # noqa: SLF001  # its streams cannot be given otherwise
        tasks.start_soon(run)
        async for item in received:
            message = item.message if isinstance(item, SessionMessage) else None
            if isinstance(message, JSONRPCRequest) and message.method == "server/discover":
                refusal = ErrorData(code=METHOD_NOT_FOUND, message="Method not found")
                await answers.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=refusal)))
            else:
                await passed.send(item)
        await passed.aclose()


def main(port: str = "", mode: str = "") -> None:
    if not port:
        if mode == "old":
            asyncio.run(serve_old())
        else:
            server.run("stdio")
        return
    app = server.streamable_http_app(json_response=mode == "json")
    chosen = refusing_new(app) if mode == "old" else app
    asyncio.run(uvicorn.Server(uvicorn.Config(chosen, port=int(port), log_level="error")).serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
