"""Cuts recorded messages in OpenAI's form (roles, `tool_calls`, `tool_call_id`) into turns."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from benchmarks.replay_data import CLOSING_ANSWER, Call, Json, Step, Turn

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
