"""The replay's judgement from outside: nothing said is lost or changed, and nothing is summarised that was not read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmarks.replay_data import Turn

Json: TypeAlias = dict[str, Any]  # a message as the service returns it


@dataclass(frozen=True, slots=True)
class Said:
    """One message as it must be stored. `calls` are (id, name, arguments), `authors` stand in its metadata."""

    role: str
    content: str
    calls: tuple[tuple[str, str, str], ...] = ()
    tool_call_id: str | None = None
    authors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Played:
    """A turn that was sent, and whether the service answered it."""

    turn: Turn
    is_answered: bool


def said_in(turn: Turn) -> Iterator[Said]:
    """Yield the messages of a turn in the order they are stored."""
    yield Said("user", turn.user, authors=turn.authors)
    for step in turn.steps:
        yield Said("assistant", step.text, tuple((call.id, call.name, call.arguments) for call in step.calls))
        yield from (Said("tool", call.result, tool_call_id=call.id) for call in step.calls)


def stored(message: Json) -> Said:
    """Return a message of the service in the same terms."""
    calls = tuple((call["id"], call["name"], call["arguments"]) for call in message["tool_calls"])
    authors = tuple((message.get("metadata") or {}).get("authors", ()))
    return Said(message["role"], message["content"], calls, message["tool_call_id"], authors)


def find_differences(played: Sequence[Played], messages: Sequence[Json]) -> list[str]:
    """Return what is missing, changed or out of order; an unanswered turn may have stored any part of itself."""
    found = [stored(message) for message in messages]
    differences = [
        f"position {message['position']} stands at place {index}"
        for index, message in enumerate(messages, 1)
        if message["position"] != index
    ]
    place = 0
    for number, item in enumerate(played, 1):
        for said in said_in(item.turn):
            if place < len(found) and found[place] == said:
                place += 1
            elif item.is_answered:
                differences.append(f"turn {number}: {said.role} message is not stored as it was sent: {said!r:.200}")
    if place != len(found):
        differences.append(f"{len(found) - place} stored messages from place {place + 1} on were never said")
    return differences


def find_skipped(cursor: int, requests: Sequence[Json]) -> list[int]:
    """Return the positions up to the cursor that no summariser was shown in a request that ended well.

    `requests` are records of a double that tell which `[#N role …` lines of the record each request held; those of one
    session. What is found again by its hash was read when it was written, and a merge reads no record.
    """
    read = {position for record in requests if is_read(record) for position in record["positions"]}
    return [position for position in range(1, cursor + 1) if position not in read]


def is_read(record: Json) -> bool:
    """Whether a summariser's request was answered whole: not refused, not cut off, and not with an empty text."""
    is_answered = record["verdict"] == "answered" and not record["refusal"]
    return bool(record["line"] == "summariser" and is_answered and record["is_whole"])
