"""What the double is told to answer: steps in lines, one line for each conversation that names itself.

A conversation names itself by `[script:NAME]` in its system message; summarisers and all others share two lines.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import StrEnum

from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused

ANY_TURN = ""
"""The line of turns whose conversation has no line of its own."""

SUMMARISER = "summariser"
"""The line of requests that ask for a summary."""


class Failure(StrEnum):
    """What can be made to go wrong."""

    RATE_LIMITED = "rate_limited"
    QUOTA = "quota"
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    CONTEXT_LENGTH = "context_length"
    HTML = "html"
    HANG = "hang"
    HANG_IN_ANSWER = "hang_in_answer"
    RESET = "reset"
    CLEAN_CUT = "clean_cut"
    ERROR_IN_STREAM = "error_in_stream"
    EMPTY = "empty"
    BAD_TOOL_JSON = "bad_tool_json"


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call the double makes; `arguments` is sent as it is written here."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One answer.

    `pieces` is how many chunks the text is streamed in, `delay_seconds` the pause before each (a trickle).
    `retry_after` is sent with RATE_LIMITED. A failure inside an answer shows the first half of `text`. `refused` is a
    refusal to send in place of an answer. `thinking` is reasoning before the answer, `redacted` encrypted reasoning.
    """

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    failure: Failure | None = None
    pieces: int = 3
    delay_seconds: float = 0.0
    retry_after: str = "1"
    finish_reason: str = ""
    refused: Refused | None = None
    thinking: str = ""
    redacted: str = ""


@dataclass(slots=True)
class Line:
    """The steps one kind of request is answered from; after them, the default answer if `then_default`."""

    steps: deque[ScriptStep] = field(default_factory=deque)
    then_default: bool = False


@dataclass(slots=True)
class Script:
    """All lines, and the requests nobody had written a step for."""

    lines: dict[str, Line] = field(default_factory=dict)
    unexpected: list[str] = field(default_factory=list)

    def add(self, steps: Iterable[ScriptStep], line: str, *, then_default: bool) -> None:
        """Append steps to a line."""
        found = self.lines.setdefault(line, Line())
        found.steps.extend(steps)
        found.then_default = then_default

    def line_for(self, name: str) -> str:
        """Return the line that answers the conversation `name`: its own, else the shared one."""
        return name if name in self.lines else ANY_TURN

    def take(self, line: str) -> ScriptStep | None:
        """Return the next step; None where the default answer is wanted. Raises LookupError where none is left."""
        found = self.lines.get(line)
        if found is None:
            return None
        if found.steps:
            return found.steps.popleft()
        if found.then_default:
            return None
        self.unexpected.append(line)
        raise LookupError(f"the script {line!r} of the provider double has no further step")

    def complaints(self) -> list[str]:
        """Return what was not asked for, and what was asked for too often."""
        unused = [
            f"{len(line.steps)} steps of the script {name!r} were not asked for"
            for name, line in self.lines.items()
            if line.steps
        ]
        return [*unused, *(f"a request had no step left in the script {name!r}" for name in self.unexpected)]


def step_from_json(value: Json) -> ScriptStep:
    """Return the step that was sent as JSON. Raises ValueError for a field that does not exist."""
    known = {item.name for item in fields(ScriptStep)}
    if unknown := set(value) - known:
        raise ValueError(f"a step has no {', '.join(sorted(unknown))}: use {', '.join(sorted(known))}")
    calls = tuple(ScriptedCall(**call) for call in value.get("calls", ()))
    failure = Failure(value["failure"]) if value.get("failure") else None
    refused = Refused(**value["refused"]) if value.get("refused") else None
    return ScriptStep(**{**value, "calls": calls, "failure": failure, "refused": refused})
