"""Servers of tools at an address: well-behaved ones of both revisions, and such that misbehave."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fakes import waiting
from fakes.raw_http_server import EVENT_STREAM, Answer, serve_raw
from fakes.service_process import free_port
from fakes.tool_servers import outcome_of, served_call
from fakes.waiting import HANG_SECONDS
from throughline.domain.tool import ToolOutcome
from throughline.domain.tool_server import ToolServer
from throughline.tools.mcp_client.bounds import Bounds
from throughline.tools.mcp_client.connections import McpConnections

pytest.importorskip("mcp.client.client", reason="the extra `mcp` is not installed")

PROGRAM = Path(waiting.__file__).parent / "mcp_server.py"
BOUNDS = Bounds(
    wait_seconds=HANG_SECONDS, first_pause_seconds=0.01, relist_seconds=0.01, close_seconds=1.0, message_bytes=200_000
)
SECRET = "Bearer s3cret"
ADD = {"name": "add", "inputSchema": {"type": "object"}}


def read_variable(name: str) -> str:
    return {"TOKEN": SECRET}.get(name, "")


def at(url: str, timeout_seconds: float = HANG_SECONDS) -> ToolServer:
    return ToolServer("web", url=url, headers=(("Authorization", "TOKEN"),), timeout_seconds=timeout_seconds)


@asynccontextmanager
async def serving(mode: str, port: int = 0) -> AsyncGenerator[ToolServer]:
    """Run the SDK's server."""
    port = port or free_port()
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), str(port), mode, env=variables)
    try:
        await waiting.until_found(lambda: _listens(port))
        yield at(f"http://127.0.0.1:{port}/mcp")
    finally:
        process.kill()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.fixture
async def servers() -> AsyncGenerator[McpConnections]:
    async with McpConnections(read_variable, 10_000, bounds=BOUNDS) as made:
        yield made


async def call(servers: McpConnections, server: ToolServer, name: str, **arguments: object) -> ToolOutcome:
    return await outcome_of(servers, await served_call(servers, server, name, **arguments))


@pytest.mark.parametrize("mode", ["new", "json", "old"])
async def test_tools_of_both_revisions_are_called(servers: McpConnections, mode: str) -> None:
    async with serving(mode) as server:
        assert await call(servers, server, "add", a=1, b=2) == ToolOutcome("3")
        assert (await call(servers, server, "header")).text == SECRET
        assert (await call(servers, server, "raw")).is_error
        short = at(server.url, timeout_seconds=0.2)
        hung = await call(servers, short, "hang")
        assert hung.text.startswith("web__hang did not answer within 0.2 seconds")


@pytest.mark.parametrize("mode", ["new", "old"])
async def test_a_call_that_timed_out_is_cancelled_at_the_server(servers: McpConnections, mode: str) -> None:
    async with serving(mode) as server:
        hung = await call(servers, at(server.url, timeout_seconds=0.2), "hang")

        assert hung.is_error
        async with asyncio.timeout(HANG_SECONDS):
            while (await call(servers, server, "cancellations")).text != "1":
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("mode", ["new", "old"])
async def test_a_changed_list_is_read_again(servers: McpConnections, mode: str) -> None:
    async with serving(mode) as server:
        async with asyncio.timeout(HANG_SECONDS):
            while (await servers.tools_of([server])).get("web__grown") is None:
                assert (await call(servers, server, "grow")).text == "done"
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("mode", ["new", "old"])
async def test_a_server_that_was_restarted_is_used_again(servers: McpConnections, mode: str) -> None:
    port = free_port()
    async with serving(mode, port) as server:
        assert (await call(servers, server, "add", a=1, b=2)).text == "3"
    async with serving(mode, port):
        async with asyncio.timeout(HANG_SECONDS):
            while (await servers.tools_of([server])).get("web__add") is None:
                await asyncio.sleep(0.02)
            while (await call(servers, server, "add", a=1, b=2)).text != "3":
                await asyncio.sleep(0.02)


DISCOVERED = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "public",
}
LISTED = {"tools": [ADD], "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}


def answer(number: int, result: object) -> Answer:
    return Answer([json.dumps({"jsonrpc": "2.0", "id": number, "result": result})])


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (
            Answer(["{"]),
            "Failed to parse JSON response",
        ),
        (
            Answer([""], status=307, headers=(("location", "/elsewhere"),)),
            "the server redirects (307), which is not followed: set its new address as `url`",
        ),
        (
            Answer([""], status=302, headers=(("location", "http://192.0.2.1/"),)),
            "the server redirects (302), which is not followed",
        ),
        (Answer(["x" * 1_000] * 100_000), "the answer has more than 200,000 bytes"),
        (Answer(["data: x\n"] * 10_000_000, content_type=EVENT_STREAM), "SSE stream"),
        (Answer(["x"], is_cut=True), "the answer broke off"),
        (Answer(["x"], content_type="text/html"), "Unexpected content type"),
        (Answer(["x"], status=503, content_type="text/html"), "the server answered with the status 503"),
        (Answer(["x"], headers=(("content-encoding", "gzip"),)), "the server compressed its answer"),
    ],
)
async def test_a_broken_answer_is_an_error_result(servers: McpConnections, last: Answer, text: str) -> None:
    async with serve_raw(answer(1, DISCOVERED), answer(2, LISTED), last) as raw:
        outcome = await call(servers, at(raw.url), "add")

    assert outcome.is_error
    assert text in outcome.text
    assert raw.paths == ["/", "/", "/"]


async def test_an_answer_that_never_ends_is_given_up(servers: McpConnections) -> None:
    last = Answer(["{"], hangs=True)
    async with serve_raw(answer(1, DISCOVERED), answer(2, LISTED), last) as raw:
        outcome = await call(servers, at(raw.url, timeout_seconds=0.2), "add")
        await asyncio.wait_for(raw.hung_up.wait(), HANG_SECONDS)

    assert "did not answer within 0.2 seconds" in outcome.text


async def test_a_server_that_cannot_be_reached_is_a_problem(servers: McpConnections) -> None:
    served = await servers.tools_of([at(f"http://127.0.0.1:{free_port()}/mcp")])

    assert served.problems == {
        "web": "connecting or listing its tools failed: the server cannot be reached (ConnectError)"
    }


@pytest.mark.parametrize(("before", "told"), [("", "wrong token …"), ("x" * 235, "xwrong token …x")])
async def test_a_reason_does_not_show_secrets(servers: McpConnections, before: str, told: str) -> None:
    message = f"{before}wrong token {SECRET}{before}"
    refusal = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": message}}
    refused = Answer([json.dumps(refusal)], status=401)
    async with serve_raw(refused, refused) as raw:
        served = await servers.tools_of([at(raw.url)])

    reason = served.problems["web"]
    assert told in reason
    assert SECRET[:10] not in reason


async def test_a_header_whose_variable_is_not_set_is_named(servers: McpConnections) -> None:
    server = ToolServer("web", url="http://127.0.0.1:1", headers=(("Authorization", "MISSING"),))

    served = await servers.tools_of([server])

    assert served.problems == {"web": "the environment variable MISSING is not set, from which Authorization is taken"}
