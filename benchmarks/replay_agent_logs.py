"""Reads what coding agents left behind: OpenHands' event logs and SWE-agent's trajectories.

Both are turned into messages in OpenAI's form first: a long run of either is one user message and dozens of tool calls.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.replay_data import Conversation, Dataset, Json, json_lines
from benchmarks.replay_messages import turns_of

SILENT = frozenset({"system", "recall"})
"""OpenHands' events that are neither said nor a tool's: its prompt, and its own look-ups."""

ARGUMENTS = {"run": ("command",), "run_ipython": ("code",)}
"""What the calls of older OpenHands logs, which keep no arguments, were made with."""

OPENHANDS_PROMPT = "You are OpenHands agent, an assistant that solves tasks in a workspace with its tools."


def load_openhands(folder: Path) -> Dataset:
    """Read `*.jsonl`: one run in each line, its events under `history`."""
    runs: list[list[Json]] = [line["history"] for line in json_lines(folder)]
    prompts = [_text_of(event) for run in runs for event in run if event.get("action") == "system"]
    return Dataset(
        name="openhands-events",
        system_prompt=next(filter(None, prompts), OPENHANDS_PROMPT),
        conversations=tuple(Conversation(tuple(turns_of(list(_messages(run))))) for run in runs),
    )


def load_swe_agent(folder: Path) -> Dataset:
    """Read `*.traj`: one run in each file, its messages under `history`; the shortest system prompt serves all."""
    runs: list[list[Json]] = [json.loads(path.read_text("utf-8"))["history"] for path in sorted(folder.glob("*.traj"))]
    systems = [message["content"] for run in runs for message in run if message["role"] == "system"]
    return Dataset(
        name="swe-agent-demos",
        system_prompt=min(systems, key=len, default=""),
        conversations=tuple(Conversation(tuple(turns_of([_answering(message) for message in run]))) for run in runs),
    )


def _answering(message: Json) -> Json:
    """SWE-agent names the call a result answers in a list of one."""
    return message if message["role"] != "tool" else {**message, "tool_call_id": message["tool_call_ids"][0]}


def _messages(events: Sequence[Json]) -> Iterator[Json]:
    """Yield the messages of an OpenHands run; an action and what it led to are a call and its result."""
    results = _results(events)
    for index, event in enumerate(events):
        action = event.get("action")
        if action in SILENT or event.get("observation") in SILENT:
            continue
        if index in results:
            yield from _call_and_result(index, event, results[index])
        elif action == "message" and event.get("source", "user") == "user":
            yield {"role": "user", "content": _text_of(event)}
        elif action is not None:
            yield {"role": "assistant", "content": _thought_of(event) or _text_of(event)}
        elif event.get("observation") == "error":
            yield {"role": "user", "content": _text_of(event)}  # OpenHands tells the model so, too


def _results(events: Sequence[Json]) -> dict[int, Json]:
    """Return the observation each action led to: the one that names it, in older logs the one right behind it."""
    places = {event["id"]: place for place, event in enumerate(events) if "id" in event}
    found: dict[int, Json] = {}
    for place, event in enumerate(events):
        if event.get("observation") is None or event["observation"] in SILENT:
            continue
        cause = places.get(event.get("cause")) if "id" in event else place - 1
        if cause is not None and events[cause].get("action") is not None:
            found[cause] = event
    return found


def _call_and_result(index: int, action: Json, observation: Json) -> Iterator[Json]:
    call = _recorded_call(action) or _older_call(index, action)
    yield {"role": "assistant", "content": _thought_of(action), "tool_calls": [call]}
    yield {"role": "tool", "tool_call_id": call["id"], "content": _text_of(observation)}


def _recorded_call(action: Json) -> Json | None:
    """Return the call as the model made it: the one of its answer's calls that this action carried out."""
    made = action.get("tool_call_metadata") or {}
    for choice in (made.get("model_response") or {}).get("choices", ()):
        for call in choice["message"].get("tool_calls") or ():
            if call["id"] == made["tool_call_id"]:
                return dict(call)
    return None


def _older_call(index: int, action: Json) -> Json:
    arguments = {name: action[name] for name in ARGUMENTS.get(action["action"], ()) if name in action}
    return {"id": f"call_{index}", "function": {"name": action["action"], "arguments": json.dumps(arguments)}}


def _thought_of(action: Json) -> str:
    return str((action.get("args") or action).get("thought") or "")


def _text_of(event: Json) -> str:
    return str((event.get("args") or {}).get("content") or event.get("content") or event.get("message") or "")
