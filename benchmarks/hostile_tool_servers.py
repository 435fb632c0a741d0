"""What servers of tools that misbehave do to the process that calls them, and what a good server beside them notices.

`PYTHONPATH=tests python -m benchmarks.hostile_tool_servers`. Each server is connected and called as a turn does it, one
after the other, and then all at once. Four other turns call a good server meanwhile. The first row has no bad server.
Exits with 1 if the memory grows by more than MEMORY_MB, or a call of the good server fails or takes over SLOWEST_MS.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from benchmarks.figures import aligned, held_mb, peak_mb
from fakes import hostile_mcp_server
from fakes.raw_http_server import Answer, serve_raw
from fakes.tool_servers import CONTEXT, outcome_of, served_call
from throughline.domain.tool_server import ServedCall, ServedTools, ToolServer
from throughline.tools.mcp_client.connections import McpConnections

FAKES = Path(hostile_mcp_server.__file__).parent
PEAK = Path("/proc/self/clear_refs")
CALL_SECONDS = 3.0
ROW_SECONDS = 5.0
LATE_SECONDS = 0.1
"""Time limit of the server that answers later."""

NEIGHBOURS = 4
PAUSE_SECONDS = 0.01
MAX_RESULT_BYTES = 1_000_000
MAX_SHOWN = 60
MEMORY_MB = 100.0
SLOWEST_MS = 1_000.0

REDIRECTS = "redirects"
WAYS = {
    "hang": "hangs in the call",
    "die": "dies in the call",
    "messages": "floods with messages",
    "lie": "does not keep to its schema",
    "changes": "changes its list without end",
    REDIRECTS: "redirects (HTTP)",
    "late": "answers after the time",
    "flood": "sends 100 MB",
    "characters": "sends NUL and half a pair",
    "built_in": "has names of built-in tools",
    "instructions": "has instructions as description",
    "family": "never ends",
}
"""The ways of misbehaving by the mode of the double."""

COMMON = {"resultType": "complete", "ttlMs": 600_000, "cacheScope": "public"}
DISCOVERED = {**COMMON, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
LISTED = {**COMMON, "tools": [{"name": "act", "inputSchema": {"type": "object"}}]}
VARIABLES = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@dataclass(slots=True)
class Neighbours:
    """Calls of the good server: their seconds since the row began, and how many did not return the sum."""

    servers: McpConnections
    seconds: list[float] = field(default_factory=list)
    failures: int = 0

    async def call(self) -> None:
        """Call the good server again and again, listing its tools first as each turn does."""
        good = ToolServer(
            "good", (sys.executable, str(FAKES / "mcp_server.py")), variables=(("PYTHONPATH", "PYTHONPATH"),)
        )
        while True:
            began = time.monotonic()
            add = await served_call(self.servers, good, "add", a=1, b=2)
            outcome = await outcome_of(self.servers, add)
            self.seconds.append(time.monotonic() - began)
            self.failures += outcome.text != "3"
            await asyncio.sleep(PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class Row:
    """What happened beside one bad server. `seconds` are those of its call, `end_seconds` those of its end."""

    way: str
    read: str
    seconds: float
    end_seconds: float
    grown_mb: float
    neighbours: tuple[float, ...]
    failures: int

    def cells(self) -> tuple[str, ...]:
        """Return the row's cells."""
        times = [1_000 * seconds for seconds in self.neighbours]
        own = f"{self.seconds:.2f}", f"{self.end_seconds:.2f}", f"{self.grown_mb:.0f}"
        theirs = f"{len(times)}", f"{statistics.median(times):.0f}", f"{max(times):.0f}", f"{self.failures}"
        return (self.way, self.read.replace("|", "/")[:MAX_SHOWN], *own, *theirs)


HEADINGS = ("server", "what the model reads", "s", "s to end", "MB", "good calls", "median ms", "slowest ms", "failed")


def read_variable(name: str) -> str:
    """Return a variable of the environment that the servers get."""
    return VARIABLES.get(name, "")


@asynccontextmanager
async def serving(mode: str) -> AsyncGenerator[ToolServer]:
    """Yield the server that misbehaves in this way."""
    if mode != REDIRECTS:
        seconds = LATE_SECONDS if mode == "late" else CALL_SECONDS
        yield ToolServer(mode, (sys.executable, hostile_mcp_server.__file__, mode), timeout_seconds=seconds)
        return
    texts = [json.dumps({"jsonrpc": "2.0", "id": id_, "result": told}) for id_, told in ((1, DISCOVERED), (2, LISTED))]
    elsewhere = Answer([""], status=307, headers=(("location", "http://127.0.0.1:9/"),))
    async with serve_raw(*(Answer([text]) for text in texts), elsewhere) as raw:
        yield ToolServer(mode, url=raw.url, timeout_seconds=CALL_SECONDS)


async def use(servers: McpConnections, server: ToolServer) -> tuple[str, float]:
    """Connect to the server and call its first tool; return what a model reads, and the seconds of the call."""
    served = await servers.tools_of([server])
    if not served.tools:
        return str(served.problems), 0.0
    began = time.monotonic()
    outcome = await outcome_of(servers, ServedCall(served.tools[0], "{}", CONTEXT))
    return read_by_model(server.name, served, outcome.text), time.monotonic() - began


def read_by_model(mode: str, served: ServedTools, result: str) -> str:
    """Return the part of what the model reads that shows how the server misbehaves."""
    if mode == "built_in":
        return ", ".join(tool.spec.name for tool in served.tools)
    return served.tools[0].spec.description if mode == "instructions" else repr(result)[1:-1]


async def play(modes: Sequence[str], way: str, neighbours: Neighbours) -> Row:
    """Use the servers at once, and go on for ROW_SECONDS, for what they do after the call."""
    PEAK.write_text("5")  # noqa: ASYNC240  # the peak of the memory is from here on
    before, neighbours.seconds, neighbours.failures = held_mb(os.getpid()), [], 0
    async with AsyncExitStack() as stack:
        bad = [await stack.enter_async_context(serving(mode)) for mode in modes]
        async with McpConnections(read_variable, MAX_RESULT_BYTES) as servers:
            until = time.monotonic() + ROW_SECONDS
            used = await asyncio.gather(*(use(servers, server) for server in bad))
            await asyncio.sleep(until - time.monotonic())
            ending = time.monotonic()
        end_seconds = time.monotonic() - ending
    read = used[0][0] if len(used) == 1 else ""
    seconds, grown_mb = max((seconds for _, seconds in used), default=0.0), max(peak_mb(os.getpid()) - before, 0.0)
    return Row(way, read, seconds, end_seconds, grown_mb, tuple(neighbours.seconds), neighbours.failures)


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile_tool_servers", description=__doc__)
    parser.add_argument("--only", default="", help="servers with this in their description")
    only: str = parser.parse_args(arguments).only
    chosen = {mode: way for mode, way in WAYS.items() if only in way}
    async with McpConnections(read_variable, MAX_RESULT_BYTES) as servers:
        neighbours = Neighbours(servers)
        calling = [asyncio.create_task(neighbours.call()) for _ in range(NEIGHBOURS)]
        await asyncio.sleep(ROW_SECONDS)  # until the good server is connected
        rows = [await play([], "none", neighbours)]
        rows += [await play([mode], way, neighbours) for mode, way in chosen.items()]
        rows.append(await play(list(chosen), "all at once", neighbours))
        for task in calling:
            task.cancel()
        await asyncio.gather(*calling, return_exceptions=True)
    print(aligned([HEADINGS, *(row.cells() for row in rows)]))
    slowest = 1_000 * max(max(row.neighbours) for row in rows)
    is_met = slowest <= SLOWEST_MS and all(row.grown_mb <= MEMORY_MB and not row.failures for row in rows)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
