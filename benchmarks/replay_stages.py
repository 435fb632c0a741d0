"""What a turn's events say about its prompts: which compactions ended, and before which model call each of them did."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]  # an event's data, or a record of the double's


@dataclass(frozen=True, slots=True)
class Stage:
    """One `context.compaction.finished`: `fired` names the steps that changed the prompt."""

    outcome: str
    fired: tuple[str, ...]


@dataclass(slots=True)
class Told:
    """What the events of one turn told; `ending` is the name of its last event, empty for a stream that was cut.

    `calls` holds the number of stages right before each answered model call, `pending` that after the last call.
    """

    ending: str = ""
    error: str = ""
    stages: list[Stage] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    pending: int = 0

    @property
    def is_answered(self) -> bool:
        """Whether the run was completed."""
        return self.ending == "run.completed"

    def take(self, name: str, data: Json) -> None:
        """Read one event; each stored step of the model's ends a call."""
        match name:
            case "context.compaction.finished":
                self.stages.append(Stage(str(data.get("outcome")), tuple(data.get("fired", ()))))
                self.pending += 1
            case "message.completed":
                self.calls.append(self.pending)
                self.pending = 0
            case "run.completed" | "run.failed" | "run.cancelled":
                self.ending = name
                self.error = "" if self.is_answered else f"{name} {data!s:.300}"
            case _:
                pass


def read_turn(stream: str) -> Told:
    """Read the server-sent events of a whole run."""
    told = Told(error="no last event")
    for name, data in _events(stream):
        told.take(name, data)
    return told


def stage_flags(told: Told, records: Sequence[Json]) -> list[bool]:
    """Return for each model request of a turn whether a stage came between it and the request before.

    A refused request and the smaller one after it belong to one call of the turn's.
    """
    flags: list[bool] = []
    call = 0
    for record in records:
        stages = told.calls[call] if call < len(told.calls) else len(told.stages)
        flags.append(stages > 0)
        call += record["verdict"] == "answered"
    return flags


def stable_share(requests: Iterable[tuple[Json, bool]]) -> float:
    """Return the share of the prompts' bytes that stand at the start of the next prompt; 1 where there was none.

    Each request comes with its flag; those that a stage came before do not count.
    """
    at_rest = [record for record, has_stage in requests if not has_stage]
    previous = sum(record["previous_bytes"] for record in at_rest)
    return sum(record["shared_bytes"] for record in at_rest) / previous if previous else 1.0


def _events(stream: str) -> Iterator[tuple[str, Json]]:
    for block in stream.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if "event" in fields:
            yield fields["event"], json.loads(fields.get("data", "{}"))
