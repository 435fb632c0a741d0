"""A client of AG-UI that keeps the thread's messages as `@ag-ui/client` does, and checks every stream it reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import httpx

Json: TypeAlias = dict[str, Any]
ENDS = {"RUN_FINISHED", "RUN_ERROR"}
OPENERS: Mapping[str, tuple[str, str]] = {
    "TEXT_MESSAGE_START": ("text", "messageId"),
    "REASONING_START": ("span", "messageId"),
    "REASONING_MESSAGE_START": ("reasoning", "messageId"),
    "TOOL_CALL_START": ("call", "toolCallId"),
}
CONTENTS: Mapping[str, tuple[str, str]] = {
    "TEXT_MESSAGE_CONTENT": ("text", "messageId"),
    "REASONING_MESSAGE_CONTENT": ("reasoning", "messageId"),
    "TOOL_CALL_ARGS": ("call", "toolCallId"),
}
CLOSERS: Mapping[str, tuple[str, str]] = {
    "TEXT_MESSAGE_END": ("text", "messageId"),
    "REASONING_END": ("span", "messageId"),
    "REASONING_MESSAGE_END": ("reasoning", "messageId"),
    "TOOL_CALL_END": ("call", "toolCallId"),
}
MEMBERS: Mapping[str, set[str]] = {
    "RUN_STARTED": {"threadId", "runId", "protocolVersion"},
    "RUN_FINISHED": {"threadId", "runId", "outcome"},
    "RUN_ERROR": {"message", "code"},
    "TEXT_MESSAGE_START": {"messageId", "role"},
    "TEXT_MESSAGE_CONTENT": {"messageId", "delta"},
    "TEXT_MESSAGE_END": {"messageId"},
    "TOOL_CALL_START": {"toolCallId", "toolCallName", "parentMessageId"},
    "TOOL_CALL_ARGS": {"toolCallId", "delta"},
    "TOOL_CALL_END": {"toolCallId"},
    "TOOL_CALL_RESULT": {"messageId", "toolCallId", "content"},
    "REASONING_START": {"messageId"},
    "REASONING_MESSAGE_START": {"messageId", "role"},
    "REASONING_MESSAGE_CONTENT": {"messageId", "delta"},
    "REASONING_MESSAGE_END": {"messageId"},
    "REASONING_END": {"messageId"},
    "STATE_SNAPSHOT": {"snapshot"},
    "STATE_DELTA": {"delta"},
    "MESSAGES_SNAPSHOT": {"messages"},
    "CUSTOM": {"name", "value"},
}
"""The members that each event has beside its type; a run's first event and its ends may have one more."""

OPTIONAL: Mapping[str, set[str]] = {"RUN_STARTED": {"parentRunId"}, "RUN_FINISHED": {"usage"}, "RUN_ERROR": {"usage"}}


def read_events(stream: bytes) -> list[Json]:
    """Return the events of a stream, without comments."""
    blocks = [block for block in stream.decode().split("\n\n") if block and not block.startswith(":")]
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


def check_stream(events: list[Json]) -> None:
    """Check one run's events by the rules of AG-UI 1.0 for members and order."""
    assert events[0]["type"] == "RUN_STARTED"
    assert [event["type"] for event in events if event["type"] in ENDS] == [events[-1]["type"]]
    is_open: set[tuple[str, str]] = set()
    for event in events:
        kind = event["type"]
        members = event.keys() - {"type"}
        assert MEMBERS[kind] <= members <= MEMBERS[kind] | OPTIONAL.get(kind, set()), event
        assert None not in [event[name] for name in members - {"value"}], event
        if kind in OPENERS:
            opened = (OPENERS[kind][0], event[OPENERS[kind][1]])
            assert opened not in is_open, event
            is_open.add(opened)
        elif kind in CONTENTS:
            assert (CONTENTS[kind][0], event[CONTENTS[kind][1]]) in is_open, event
        elif kind in CLOSERS:
            is_open.remove((CLOSERS[kind][0], event[CLOSERS[kind][1]]))
    if events[-1]["type"] == "RUN_FINISHED":
        assert not is_open
        assert {events[0][name] == events[-1][name] for name in ("threadId", "runId")} == {True}


def apply(messages: list[Json], events: list[Json]) -> None:
    """Change the client's messages as the events say."""
    for event in events:
        match event:
            case {"type": "MESSAGES_SNAPSHOT", "messages": shown}:
                messages[:] = [dict(message) for message in shown]
            case {"type": "TEXT_MESSAGE_START", "messageId": made}:
                _message(messages, made)
            case {"type": "TEXT_MESSAGE_CONTENT", "messageId": made, "delta": delta}:
                message = _message(messages, made)
                message["content"] = message.get("content", "") + delta
            case {"type": "TOOL_CALL_START", "toolCallId": made, "toolCallName": name, "parentMessageId": parent}:
                calls = _message(messages, parent).setdefault("toolCalls", [])
                calls.append({"id": made, "type": "function", "function": {"name": name, "arguments": ""}})
            case {"type": "TOOL_CALL_ARGS", "toolCallId": made, "delta": delta}:
                calls = [call for message in messages for call in message.get("toolCalls", ()) if call["id"] == made]
                calls[-1]["function"]["arguments"] += delta
            case {"type": "TOOL_CALL_RESULT", "messageId": made, "toolCallId": call, "content": content}:
                messages.append({"id": made, "role": "tool", "toolCallId": call, "content": content})
            case _:
                pass


def _message(messages: list[Json], made: str) -> Json:
    found = next((message for message in messages if message["id"] == made), None)
    if found is None:
        found = {"id": made, "role": "assistant"}
        messages.append(found)
    return found


@dataclass
class AgUiThread:
    """A thread as a client has it. `tools` are sent with each run."""

    http: httpx.AsyncClient
    thread_id: str = "thread-1"
    agent: str = "assistant"
    tools: list[Json] = field(default_factory=list)
    messages: list[Json] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    async def post(self, run_id: str = "", **more: object) -> httpx.Response:
        """Send the thread as it stands."""
        body = {"threadId": self.thread_id, "runId": run_id or f"run-{next(self.numbers)}", "messages": self.messages}
        version = {"protocolVersion": "1.0", "tools": self.tools}
        return await self.http.post(f"/ag-ui/{self.agent}", json={**body, **version, **more})

    async def run(self, run_id: str = "", **more: object) -> list[Json]:
        """Run the agent, keep what it says, and return the events."""
        response = await self.post(run_id, **more)
        assert response.status_code == httpx.codes.OK, response.text
        events = read_events(response.content)
        check_stream(events)
        apply(self.messages, events)
        return events

    async def say(self, text: str, run_id: str = "", **more: object) -> list[Json]:
        """Send a message of the user, and return the events of its run."""
        self.messages.append({"id": f"m-{next(self.numbers)}", "role": "user", "content": text})
        return await self.run(run_id, **more)

    def texts(self) -> list[object]:
        """Return the texts of all messages, and the names of tools that were called."""
        return [
            message.get("content") or [call["function"]["name"] for call in message.get("toolCalls", ())]
            for message in self.messages
        ]


def outcome(events: list[Json]) -> Json:
    """Return how a run ended."""
    ended: Json = events[-1]["outcome"]
    return ended
