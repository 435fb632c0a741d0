"""Reads recorded conversations and cuts them into turns: what the user says, and what the assistant did with it."""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]  # a recorded message: its fields are picked by name

NOTHING_RETURNED = "(empty)"
"""Stands for a recorded result without text, which no tool of the service can return as it is."""

CLOSING_ANSWER = "You're welcome."
"""Ends a recorded run that stops after the user's word or a tool's result."""


@dataclass(frozen=True, slots=True)
class Call:
    """A recorded tool call and its result."""

    id: str
    name: str
    arguments: str
    result: str


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model: text, calls, or both. The last step of a turn has no calls."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One user message and the steps that followed it."""

    user: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A recorded conversation: a run of tau-bench or a meeting."""

    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Conversations of one kind and the system prompt they were held under."""

    name: str
    system_prompt: str
    conversations: tuple[Conversation, ...]


def load_datasets(folder: Path) -> dict[str, Dataset]:
    """Return the data sets found in `folder` (`tau-bench/*.json`, `qmsum/*.jsonl`) by name."""
    loaded = (_load_tau_bench(folder / "tau-bench"), _load_qmsum(folder / "qmsum"))
    return {dataset.name: dataset for dataset in loaded if dataset.conversations}


def chain(dataset: Dataset) -> Iterator[Turn]:
    """Yield the turns of all conversations one after the other, again and again.

    Call ids are made unique in the chain, as those of one real session are: recorded runs share them.
    """
    numbers = itertools.count(1)
    for conversation in itertools.cycle(dataset.conversations):
        for turn in conversation.turns:
            yield replace(turn, steps=tuple(_numbered(step, numbers) for step in turn.steps))


def merge_turns(turns: Iterable[Turn], characters: int) -> Iterator[Turn]:
    """Yield turns whose user texts are joined until they have at least `characters`; the last answer stands.

    For talk in short lines: a turn with tool calls is never joined to another.
    """
    texts: list[str] = []
    for turn in turns:
        texts.append(turn.user)
        if len(turn.steps) > 1 or sum(map(len, texts)) >= characters:
            yield replace(turn, user="\n".join(texts))
            texts = []


def tool_shapes(datasets: Iterable[Dataset]) -> dict[str, dict[str, str]]:
    """Return for each tool that was called its arguments, each with the JSON types it was ever given (`str|int`)."""
    shapes: dict[str, dict[str, set[str]]] = {}
    for call in _calls(datasets):
        shape = shapes.setdefault(call.name, {})
        for name, value in _arguments(call).items():
            shape.setdefault(name, set()).add(type(value).__name__)
    return {
        tool: {name: "|".join(sorted(kinds)) for name, kinds in sorted(shape.items())}
        for tool, shape in sorted(shapes.items())
    }


def _calls(datasets: Iterable[Dataset]) -> Iterator[Call]:
    conversations = (item for dataset in datasets for item in dataset.conversations)
    steps = (step for conversation in conversations for turn in conversation.turns for step in turn.steps)
    return (call for step in steps for call in step.calls)


def _arguments(call: Call) -> Json:
    parsed = json.loads(call.arguments)
    return parsed if isinstance(parsed, dict) else {}


def _numbered(step: Step, numbers: Iterator[int]) -> Step:
    return replace(step, calls=tuple(replace(call, id=f"{call.id}_{next(numbers)}") for call in step.calls))


def _load_tau_bench(folder: Path) -> Dataset:
    runs = [run for path in sorted(folder.glob("*.json")) for run in json.loads(path.read_text("utf-8"))]
    trajectories: list[list[Json]] = [run["traj"] for run in runs if "traj" in run]
    systems = [message["content"] for run in trajectories for message in run if message["role"] == "system"]
    conversations = tuple(Conversation(tuple(_turns(run))) for run in trajectories)
    return Dataset("tau-bench", systems[0] if systems else "", conversations)


def _turns(messages: Sequence[Json]) -> Iterator[Turn]:
    for user, following in _stretches(messages, "user"):
        steps = tuple(_steps(following))
        if not steps or steps[-1].calls:
            steps = (*steps, Step(CLOSING_ANSWER))
        yield Turn(user["content"], steps)


def _steps(messages: Sequence[Json]) -> Iterator[Step]:
    """Yield each step with the results that stand right behind it: ids alone may be used twice in a recorded run."""
    for step, following in _stretches(messages, "assistant"):
        results = {message["tool_call_id"]: message["content"] for message in following}
        calls = (call for call in step.get("tool_calls") or () if call["id"] in results)
        yield Step(step["content"] or "", tuple(_call(call, results[call["id"]]) for call in calls))


def _stretches(messages: Sequence[Json], role: str) -> Iterator[tuple[Json, Sequence[Json]]]:
    """Yield each message of that role with all that follow until the next one of it."""
    starts = [index for index, message in enumerate(messages) if message["role"] == role]
    for start, end in itertools.zip_longest(starts, starts[1:], fillvalue=len(messages)):
        yield messages[start], messages[start + 1 : end]


def _call(recorded: Json, result: str | None) -> Call:
    function = recorded["function"]
    text = result if result and result.strip() else NOTHING_RETURNED
    return Call(recorded["id"], function["name"], function["arguments"], text)


def _load_qmsum(folder: Path) -> Dataset:
    lines = (line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines())
    meetings: list[list[Json]] = [json.loads(line)["meeting_transcripts"] for line in lines]
    return Dataset(
        name="qmsum",
        system_prompt="You take part in a meeting as its secretary. Confirm what you have noted.",
        conversations=tuple(_meeting(transcript) for transcript in meetings),
    )


def _meeting(transcript: Sequence[Json]) -> Conversation:
    said = [f"{entry['speaker']}: {entry['content']}" for entry in transcript if entry["content"].strip()]
    return Conversation(tuple(Turn(text, (Step(f"Noted, item {index}."),)) for index, text in enumerate(said, 1)))
