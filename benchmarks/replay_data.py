"""Recorded conversations cut into turns: what the user says, and what the assistant did with it.

Read by `benchmarks.replay_readers`, chained here into sessions as long as a replay needs.
"""

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]  # a recorded message: its fields are picked by name

SAMPLE = Path(__file__).parent / "data"
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
    """One user message and the steps that followed it; `authors` are the speakers of a talk, in their order."""

    user: str
    steps: tuple[Step, ...]
    authors: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of all steps."""
        return tuple(itertools.chain.from_iterable(step.calls for step in self.steps))


@dataclass(frozen=True, slots=True)
class Conversation:
    """A recorded conversation: an agent's run, a meeting, a day of a channel."""

    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Conversations of one kind and the system prompt they were held under.

    `is_talk`: people talk in short lines, and nobody calls a tool; lines may be joined to longer messages.
    """

    name: str
    system_prompt: str
    conversations: tuple[Conversation, ...]
    is_talk: bool = False


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
    joined: list[Turn] = []
    for turn in turns:
        joined.append(turn)
        if len(turn.steps) > 1 or sum(len(part.user) for part in joined) >= characters:
            authors = dict.fromkeys(author for part in joined for author in part.authors)
            yield replace(turn, user="\n".join(part.user for part in joined), authors=tuple(authors))
            joined = []


def tool_shapes(datasets: Iterable[Dataset]) -> dict[str, dict[str, str]]:
    """Return for each tool that was called its arguments, each with the JSON types it was ever given (`str|int`)."""
    shapes: dict[str, dict[str, set[str]]] = {}
    conversations = (item for dataset in datasets for item in dataset.conversations)
    for call in (call for conversation in conversations for turn in conversation.turns for call in turn.calls):
        arguments = json.loads(call.arguments)
        shape = shapes.setdefault(call.name, {})
        for name, value in arguments.items() if isinstance(arguments, dict) else ():
            shape.setdefault(name, set()).add(type(value).__name__)
    return {tool: {name: "|".join(sorted(kinds)) for name, kinds in shape.items()} for tool, shape in shapes.items()}


def json_lines(folder: Path, files: str = "*.jsonl") -> Iterator[Json]:
    """Yield the objects of the `files` of a folder, in the order of their names."""
    for path in sorted(folder.glob(files)):
        yield from (json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip())


def _numbered(step: Step, numbers: Iterator[int]) -> Step:
    return replace(step, calls=tuple(replace(call, id=f"{call.id}_{next(numbers)}") for call in step.calls))
