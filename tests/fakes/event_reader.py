"""Reads event streams of a real service: all events, or up to one."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

STREAM = {"Accept": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class Seen:
    """One event as a reader sees it."""

    id: int
    type: str
    data: dict[str, object]


@asynccontextmanager
async def sending(client: httpx.AsyncClient, session: str, content: str) -> AsyncGenerator[AsyncIterator[Seen]]:
    """Send a message and yield the events of its run as they come."""
    path = f"/v1/sessions/{session}/messages"
    async with client.stream("POST", path, json={"content": content}, headers=STREAM) as response:
        yield _events(response)


@asynccontextmanager
async def following(client: httpx.AsyncClient, run: str, after: int = 0) -> AsyncGenerator[AsyncIterator[Seen]]:
    """Yield the events of a run behind number `after` as they come."""
    headers = {**STREAM, "Last-Event-ID": str(after)}
    async with client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
        yield _events(response)


async def until(events: AsyncIterator[Seen], event_type: str) -> list[Seen]:
    """Read up to the first event of the type; fails where the stream ends before."""
    seen = []
    async for event in events:
        seen.append(event)
        if event.type == event_type:
            return seen
    told = [event.type for event in seen], [event.data.get("error") for event in seen[-1:]]
    raise AssertionError(f"the stream ended before {event_type}: {told}")


async def until_cut(events: AsyncIterator[Seen]) -> list[Seen]:
    """Read until the server cuts the connection; fails where the stream ends cleanly."""
    seen = []
    try:
        async for event in events:
            seen.append(event)  # noqa: PERF401  # what was read before the cut counts
    except httpx.RemoteProtocolError:
        return seen
    raise AssertionError(f"the stream ended cleanly: {[event.type for event in seen]}")


def text_of(events: list[Seen]) -> str:
    """Return the answer's text as its readers have been shown it."""
    return "".join(str(event.data["text"]) for event in events if event.type == "message.delta")


async def _events(response: httpx.Response) -> AsyncGenerator[Seen]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if not line and fields:
            yield Seen(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
