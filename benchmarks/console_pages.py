"""How long the console's pages take over a session of many messages, beside one of few.

`python -m benchmarks.console_pages`. The sessions are written straight into the database and indexed once. Each page is
asked for several times over HTTP; the table has medians. The last column is the size of the page.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import httpx

from benchmarks.figures import aligned, connected
from benchmarks.processes import run_postgres, run_service
from benchmarks.turn_cost import fill_session

FEW, RECENT = 100, 40
PAGES = (
    ("chat", "sessions/{id}"),
    ("chat, at the middle", "sessions/{id}?at={middle}"),
    ("earlier messages", "sessions/{id}/messages?before={middle}"),
    ("nothing new", "sessions/{id}/updates?after={last}&gauge={last}"),
    ("something new", "sessions/{id}/updates?after={middle}&gauge=0"),
    ("context", "sessions/{id}/context"),
    ("summaries", "sessions/{id}/summaries"),
    ("search in the chat", "sessions/{id}/search?q=harbour+office+{middle}"),
    ("list of chats", "sessions"),
    ("search in all chats", "search?q=harbour+office+{middle}"),
    ("costs", "costs"),
    ("state", "operate"),
    ("runs", "operate/runs"),
    ("keys", "operate/keys"),
)


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console_pages", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=10, help="how often each page is asked for")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="console-pages-") as name:
        print(await _measured(Path(name), (FEW, options.messages), options.times))
    return 0


async def _measured(folder: Path, sizes: Sequence[int], times: int) -> str:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(run_postgres(folder))
        service = stack.enter_context(run_service(folder, {"DATABASE_URL": url}))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=service.url, timeout=120))
        connection = await stack.enter_async_context(connected(url))
        sessions = [(await _make_session(http, connection, messages), messages) for messages in sizes]
        return await _table(http, sessions, times)


async def _make_session(http: httpx.AsyncClient, connection: asyncpg.Connection, messages: int) -> str:
    """Return the id of a new session with so many messages, all of them indexed."""
    made = await http.post("/v1/sessions", json={"agent": "assistant", "title": f"{messages} messages"})
    session_id = str(made.json()["id"])
    await fill_session(connection, session_id, messages - RECENT, RECENT)
    while not (await http.get("/v1/search?q=harbour")).json()["is_complete"]:
        pass  # each search indexes some more
    return session_id


async def _table(http: httpx.AsyncClient, sessions: Sequence[tuple[str, int]], times: int) -> str:
    lines = [("page, in ms", *(f"{messages:,} messages" for _, messages in sessions), "kB")]
    for name, address in PAGES:
        addresses = [address.format(id=one, middle=count // 2, last=count) for one, count in sessions]
        measured = [await _measure(http, each, times) for each in addresses]
        lines.append((name, *(f"{median:.0f}" for median, _ in measured), f"{measured[-1][1] / 1000:.0f}"))
    return aligned(lines)


async def _measure(http: httpx.AsyncClient, address: str, times: int) -> tuple[float, int]:
    """Return the median time of a page in milliseconds, and its bytes."""
    taken, size = [], 0
    for _ in range(times + 1):
        began = time.perf_counter()
        response = await http.get(f"/console/{address}")
        taken.append((time.perf_counter() - began) * 1000)
        size = len(response.raise_for_status().content)
    return statistics.median(taken[1:]), size


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
