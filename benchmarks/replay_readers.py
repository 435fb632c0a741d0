"""Finds the data sets in a folder and reads each in its own form; `LOADERS` says where each looks."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.replay_data import CLOSING_ANSWER, Call, Conversation, Dataset, Json, Step, Turn, json_lines

NOTHING_RETURNED = "(empty)"
"""Stands for a recorded result without text, which no tool of the service can return as it is."""


def turns_of(messages: Sequence[Json]) -> Iterator[Turn]:
    """Yield the turns of a recording; what stands before the first user message is left out, and blank user texts."""
    for user, following in _segments(messages, "user"):
        if user["content"].strip():
            yield Turn(user["content"], _closed(_steps(following)))


def _closed(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return steps as one turn of the service has them: each but the last makes calls, the last says something."""
    kept: list[Step] = []
    said = ""
    for step in steps:
        if step.calls:
            kept.append(replace(step, text=_joined(said, step.text)))
            said = ""
        else:
            said = _joined(said, step.text)
    return (*kept, Step(said or CLOSING_ANSWER))


def _joined(first: str, second: str) -> str:
    return "\n\n".join(text for text in (first, second) if text.strip())


def _steps(messages: Sequence[Json]) -> Iterator[Step]:
    """Yield each step with the results that stand right behind it: ids alone may be used twice in a recorded run."""
    for step, following in _segments(messages, "assistant"):
        results = {message["tool_call_id"]: message["content"] for message in following}
        calls = (call for call in step.get("tool_calls") or () if call["id"] in results)
        yield Step(step["content"] or "", tuple(_call(call, results[call["id"]]) for call in calls))


def _segments(messages: Sequence[Json], role: str) -> Iterator[tuple[Json, Sequence[Json]]]:
    """Yield each message of that role with all that follow until the next one of it."""
    starts = [index for index, message in enumerate(messages) if message["role"] == role]
    for start, end in itertools.zip_longest(starts, starts[1:], fillvalue=len(messages)):
        yield messages[start], messages[start + 1 : end]


def _call(recorded: Json, result: str | None) -> Call:
    function = recorded["function"]
    text = result if result and result.strip() else NOTHING_RETURNED
    return Call(recorded["id"], function["name"], function["arguments"], text)


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


_SPOKEN = re.compile(r"\[\d\d:\d\d\] <([^>]+)> ")


def load_datasets(folder: Path) -> dict[str, Dataset]:
    """Return the data sets found in `folder` by name, in a fixed order."""
    loaded = (load(folder / name) for name, load in LOADERS.items())
    return {dataset.name: dataset for dataset in loaded if dataset.conversations}


def _load_tau_bench(folder: Path) -> Dataset:
    runs = [run for path in sorted(folder.glob("*.json")) for run in json.loads(path.read_text("utf-8"))]
    trajectories: list[list[Json]] = [run["traj"] for run in runs if "traj" in run]
    systems = [message["content"] for run in trajectories for message in run if message["role"] == "system"]
    conversations = tuple(Conversation(tuple(turns_of(run))) for run in trajectories)
    return Dataset("tau-bench", systems[0] if systems else "", conversations)


def _load_qmsum(folder: Path) -> Dataset:
    return Dataset(
        name="qmsum",
        system_prompt="You take part in a meeting as its secretary. Confirm what you have noted.",
        conversations=tuple(_meeting(line["meeting_transcripts"]) for line in json_lines(folder)),
        is_talk=True,
    )


def _meeting(transcript: Iterable[Json]) -> Conversation:
    said = [(entry["speaker"], entry["content"]) for entry in transcript if entry["content"].strip()]
    return _talk((f"{speaker}: {content}", (speaker,)) for speaker, content in said)


def _load_ubuntu_irc(folder: Path) -> Dataset:
    """Each file is a day of the channel; a line's bytes are kept, those that are no text are replaced."""
    logs = [path.read_text("utf-8", "replace") for path in sorted(folder.rglob("*.raw.txt"))]
    return Dataset(
        name="ubuntu-irc",
        system_prompt="You keep the minutes of a support channel with many people. Confirm what you have noted.",
        conversations=tuple(_talk(_spoken(log)) for log in logs),
        is_talk=True,
    )


def _spoken(log: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each line and who said it; the server's own lines have no author."""
    for line in log.split("\n"):
        found = _SPOKEN.match(line)
        if line.strip():
            yield line, (found[1],) if found else ()


def _talk(lines: Iterable[tuple[str, tuple[str, ...]]]) -> Conversation:
    turns = (
        Turn(text, (Step(f"Noted, item {index}."),), authors=authors) for index, (text, authors) in enumerate(lines, 1)
    )
    return Conversation(tuple(turns))


LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "tau-bench": _load_tau_bench,
    "qmsum": _load_qmsum,
    "openhands-events": load_openhands,
    "swe-agent-demos": load_swe_agent,
    "ubuntu-irc": _load_ubuntu_irc,
}
"""BatchResult for in `tau-bench/*.json`, `qmsum/*.jsonl`, `openhands-events/*.jsonl`, `swe-agent-demos/*.traj` and
`ubuntu-irc/**/*.raw.txt`."""
