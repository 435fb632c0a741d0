"""A long synthetic conversation with facts planted in it: real small talk and service calls around made-up facts."""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

from app.context.measure import Count, count_message
from app.domain.ids import MessageId, SessionId
from app.domain.message import Message, NewMessage, Role, Source

DATA = Path(__file__).parent / "data"
SESSION = SessionId(UUID(int=1))
BEGIN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
FILLER_CHARACTERS = 600
SERVICE_EVERY = 10
EARLY_PART = 50
"""The first fact of each kind stands in this part of the conversation: the first compaction has it before it."""


COLOURS = ("blue", "green", "dented", "striped", "smaller", "wooden", "painted", "heavy", "round", "torn")
THINGS = ("crate", "lamp", "suitcase", "ladder", "mirror", "carpet", "basket", "globe", "chess board", "umbrella")
PLACES = ("piano", "greenhouse", "bookshelf", "workbench", "aquarium", "wardrobe", "boat", "stove")
NAMES = ("Marta", "Oleg", "Irina", "Tomasz", "Aiko", "Bruno", "Fatima", "Nils", "Priya", "Kofi")
SHAPES = (
    "the {colour} {thing} goes behind {name}'s {place}",
    "{name} swapped the {colour} {thing} for a {place}",
    "nobody but {name} may open the {colour} {thing} under the {place}",
    "{name} is afraid of the {colour} {thing} next to the {place}",
)
FOLDERS = ("reports", "billing", "etl", "web", "infra", "notes")


class FactKind(StrEnum):
    """What a planted fact looks like."""

    IDENTIFIER = "identifier"
    PATH = "path"
    DATE = "date"
    FREE_FORM = "free form"
    INSTRUCTION = "instruction"
    PIN = "pin"


PLANTED = {
    FactKind.IDENTIFIER: 8,
    FactKind.PATH: 8,
    FactKind.DATE: 8,
    FactKind.FREE_FORM: 20,
    FactKind.INSTRUCTION: 10,
    FactKind.PIN: 4,
}
"""How many of each kind are planted in one conversation, whatever its length."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A planted fact: `sentence` is what the user says, `key` the words that must survive."""

    kind: FactKind
    sentence: str
    key: str
    position: int = 0


@dataclass(frozen=True, slots=True)
class Planted:
    """A conversation and the facts in it, both by position."""

    messages: tuple[Message, ...]
    facts: tuple[Fact, ...]


def plant(turns: int, rng: random.Random, instructions: Sequence[str], count: Count, load: int = 1) -> Planted:
    """Return a conversation of `turns` user messages and as many answers; the planted ones are spread over it.

    `load` multiplies how many are planted.
    """
    facts = _make_facts(rng, instructions, load)
    places = dict(zip(_places(turns, len(facts), rng), facts, strict=True))
    filler = _filler(rng)
    messages: list[Message] = []
    planted: list[Fact] = []
    for turn in range(turns):
        fact = places.get(turn)
        position = 2 * turn + 1
        if fact is not None:
            planted.append(Fact(fact.kind, fact.sentence, fact.key, position))
        said = fact.sentence if fact is not None else next(filler)
        messages.append(stored_message(position, Role.USER, said, count, is_pinned=_is_pin(fact)))
        messages.append(stored_message(position + 1, Role.ASSISTANT, next(filler), count))
    return Planted(tuple(messages), tuple(planted))


def _places(turns: int, number: int, rng: random.Random) -> list[int]:
    """Places all over the conversation, one for the first fact of each kind near its beginning."""
    early = rng.sample(range(turns // EARLY_PART), len(PLANTED))
    late = rng.sample(range(turns // EARLY_PART, turns), number - len(PLANTED))
    return [*early, *late]


def _is_pin(fact: Fact | None) -> bool:
    return fact is not None and fact.kind is FactKind.PIN


def _make_facts(rng: random.Random, instructions: Sequence[str], load: int) -> list[Fact]:
    numbers = rng.sample(range(10_000, 99_999), 2000)
    free = _free_form(rng)
    rules = iter(rng.sample(list(instructions), PLANTED[FactKind.INSTRUCTION] * load))
    kinds = [*PLANTED, *(kind for kind, times in PLANTED.items() for _ in range(times * load - 1))]
    return [_make_fact(kind, numbers.pop(), free, rules) for kind in kinds]


def _make_fact(kind: FactKind, number: int, free: Iterator[str], rules: Iterator[str]) -> Fact:
    folder = FOLDERS[number % len(FOLDERS)]
    day = (BEGIN + timedelta(days=number % 900)).date().isoformat()
    match kind:
        case FactKind.IDENTIFIER:
            key = f"ORD-{number}"
            return Fact(kind, f"The order we are talking about is {key}, it is still open.", key)
        case FactKind.PATH:
            key = f"/srv/{folder}/run_{number}.csv"
            return Fact(kind, f"I have put the export into {key} for you.", key)
        case FactKind.DATE:
            return Fact(kind, f"The handover of lot {number % 97} is on {day} at noon.", day)
        case FactKind.INSTRUCTION:
            rule = next(rules)
            return Fact(kind, rule, rule)
        case FactKind.FREE_FORM | FactKind.PIN:
            key = next(free)
            return Fact(kind, f"By the way, {key}.", key)


def _free_form(rng: random.Random) -> Iterator[str]:
    choices = list(itertools.product(SHAPES, COLOURS, THINGS, NAMES, PLACES))
    for shape, colour, thing, name, place in rng.sample(choices, 1000):
        yield shape.format(colour=colour, thing=thing, name=name, place=place)


def _filler(rng: random.Random) -> Iterator[str]:
    """Lines of recorded meetings, every tenth a text of a recorded service conversation; again and again."""
    talk, service = _meeting_lines(), _service_lines()
    start = rng.randrange(len(talk))
    lines = itertools.cycle(talk[start:] + talk[:start])
    calls = itertools.cycle(service)
    for number in itertools.count(1):
        yield next(calls) if number % SERVICE_EVERY == 0 else next(lines)


def _meeting_lines() -> list[str]:
    with (DATA / "qmsum" / "meetings.jsonl").open(encoding="utf-8") as file:
        meetings: list[dict[str, Any]] = [json.loads(line) for line in file]  # recorded data: fields picked by name
    lines = [said["content"] for meeting in meetings for said in meeting["meeting_transcripts"]]
    return [line[:FILLER_CHARACTERS] for line in lines if len(line) > 20]


def _service_lines() -> list[str]:
    runs: list[dict[str, Any]] = json.loads((DATA / "tau-bench" / "gpt-4o-airline.json").read_text(encoding="utf-8"))
    said = [message for run in runs for message in run["traj"] if message["role"] in {"user", "assistant"}]
    return [message["content"][:FILLER_CHARACTERS] for message in said if message.get("content")]


def stored_message(position: int, role: Role, text: str, count: Count, *, is_pinned: bool = False) -> Message:
    """Return a stored message, counted by `count`."""
    return Message(
        id=MessageId(UUID(int=position)),
        session_id=SESSION,
        position=position,
        role=role,
        content=text,
        source=Source.API,
        created_at=BEGIN + timedelta(minutes=position),
        token_count=count_message(NewMessage(role, text, Source.API), count),
        counter="benchmark",
        pinned=is_pinned,
    )
