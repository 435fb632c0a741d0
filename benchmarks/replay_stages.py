"""What a turn's events say about its prompts: which rungs fired, and before which of its model calls."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]  # an event's data, or a record of the double's


@dataclass(frozen=True, slots=True)
class Stage:
    """One `context.compaction.finished`: `fired` are its rungs, `through_position` the cursor afterwards."""

    cause: str
    outcome: str
    fired: tuple[str, ...]
    through_position: int


@dataclass(frozen=True, slots=True)
class Told:
    """What the events of one turn told. `calls` holds the number of stages right before each answered model call."""

    is_answered: bool
    error: str = ""
    stages: tuple[Stage, ...] = ()
    calls: tuple[int, ...] = ()


@dataclass(slots=True)
class _Reading:
    """Events being read."""

    ending: Json = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    pending: int = 0

    def take(self, name: str, data: Json) -> None:
        """Read one event; each stored step of the model's ends a call."""
        match name:
            case "context.compaction.finished":
                fired, through = tuple(data.get("fired", ())), data.get("through_position") or 0
                self.stages.append(Stage(str(data.get("cause")), str(data.get("outcome")), fired, through))
                self.pending += 1
            case "message.completed":
                self.calls.append(self.pending)
                self.pending = 0
            case "run.completed" | "run.failed" | "run.cancelled":
                self.ending = {"name": name, **data}
            case _:
                pass


def read_turn(stream: str) -> Told:
    """Read the server-sent events of a whole run."""
    reading = _Reading()
    for name, data in _events(stream):
        reading.take(name, data)
    is_answered = reading.ending.get("name") == "run.completed"
    error = "" if is_answered else f"{reading.ending or 'no last event'!s:.300}"
    return Told(is_answered, error, tuple(reading.stages), tuple(reading.calls))


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


@dataclass(frozen=True, slots=True)
class Prefix:
    """How many bytes of prompts stood at the start of the next one: of all calls, and of those without a stage."""

    shared: int = 0
    previous: int = 0
    shared_at_rest: int = 0
    previous_at_rest: int = 0

    @property
    def share(self) -> float:
        """Over all calls; 1 where there was no second one."""
        return self.shared / self.previous if self.previous else 1.0

    @property
    def share_at_rest(self) -> float:
        """Over the calls that no stage came before; 1 where there was none."""
        return self.shared_at_rest / self.previous_at_rest if self.previous_at_rest else 1.0


def prefix_of(requests: Iterable[tuple[Json, bool]]) -> Prefix:
    """Sum up the requests of one session, each with its flag."""
    shared, previous = Counter[bool](), Counter[bool]()
    for record, has_stage in requests:
        shared[has_stage] += record["shared_bytes"]
        previous[has_stage] += record["previous_bytes"]
    return Prefix(shared.total(), previous.total(), shared[False], previous[False])


def adopted_ahead(told: Told, summaries: Sequence[Json]) -> int:
    """Return how many of a turn's adoptions were of a summary written before; `summaries` are asked for in the turn."""
    read = {position for record in summaries for position in record["positions"]}
    return sum(stage.outcome == "adopted" and stage.through_position not in read for stage in told.stages)


def _events(stream: str) -> Iterator[tuple[str, Json]]:
    for block in stream.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if "event" in fields:
            yield fields["event"], json.loads(fields.get("data", "{}"))
