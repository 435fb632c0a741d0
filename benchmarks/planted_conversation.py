"""A long synthetic conversation with facts planted in it: real small talk and service calls around made-up facts."""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID

from benchmarks.replay_data import SAMPLE, Json, json_lines
from throughline.context.measure import Count, count_message
from throughline.domain.ids import MessageId, SessionId
from throughline.domain.message import Message, NewMessage, Role, Source

SESSION = SessionId(UUID(int=1))
BEGIN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
FILLER_CHARACTERS = 600
SERVICE_EVERY = 10
EARLY_PART = 50
"""What is planted early stands in this part of the conversation: the first compaction has it before it."""

ROOMY = 2
"""A conversation has at least so many turns for each planted sentence, or it would consist of facts."""

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
CORRECTION = "Correction: "
FOLDERS = ("reports", "billing", "etl", "web", "infra", "notes")


class FactKind(StrEnum):
    """What a planted fact looks like."""

    IDENTIFIER = "identifier"
    PATH = "path"
    DATE = "date"
    FREE_FORM = "free form"
    INSTRUCTION = "instruction"
    CORRECTION = "correction"
    WITHDRAWN = "withdrawn value"
    PIN = "pin"


PLANTED = {
    FactKind.IDENTIFIER: 8,
    FactKind.PATH: 8,
    FactKind.DATE: 8,
    FactKind.FREE_FORM: 20,
    FactKind.INSTRUCTION: 10,
    FactKind.CORRECTION: 8,
    FactKind.PIN: 4,
}
"""How many of each kind are planted in one conversation, whatever its length. Each correction has a statement before it
whose value it withdraws."""

LEAST_TURNS = ROOMY * (sum(PLANTED.values()) + PLANTED[FactKind.CORRECTION])
"""So many turns a conversation must have at least."""

EARLY = {kind: 3 if kind is FactKind.FREE_FORM else 1 for kind in PLANTED}
"""How many of each kind are planted early."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A planted fact: `sentence` is what the user says, `key` the words that must survive.

    A correction names in `withdrawn` the key of the statement that it corrects.
    """

    kind: FactKind
    sentence: str
    key: str
    withdrawn: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class Planted:
    """A conversation and the facts in it, both by position."""

    messages: tuple[Message, ...]
    facts: tuple[Fact, ...]


def plant(turns: int, rng: random.Random, instructions: Sequence[str], count: Count) -> Planted:
    """Return a conversation of `turns` user messages and as many answers; the planted ones are spread over it.

    Raises ValueError for fewer turns than LEAST_TURNS.
    """
    if turns < LEAST_TURNS:
        raise ValueError(f"{turns} turns are too few for what is planted: at least {LEAST_TURNS} are needed")
    places = _placed(_make_facts(rng, instructions), turns, rng)
    filler = _filler(rng)
    messages: list[Message] = []
    planted: list[Fact] = []
    for turn in range(turns):
        fact = places.get(turn)
        position = 2 * turn + 1
        if fact is not None:
            planted.append(replace(fact, position=position))
        said = fact.sentence if fact is not None else next(filler)
        messages.append(stored_message(position, Role.USER, said, count, is_pinned=_is_pin(fact)))
        messages.append(stored_message(position + 1, Role.ASSISTANT, next(filler), count))
    return Planted(tuple(messages), tuple(planted))


def _placed(facts: Sequence[Fact], turns: int, rng: random.Random) -> dict[int, Fact]:
    """Return the facts by turn, all over the conversation, some of each kind near its beginning.

    What is withdrawn is said first, the correction later.
    """
    of_kinds = [[fact for fact in facts if fact.kind is kind] for kind in PLANTED]
    early = [fact for group in of_kinds for fact in group[: EARLY[group[0].kind]]]
    late = [fact for group in of_kinds for fact in group[EARLY[group[0].kind] :]]
    part = max(turns // EARLY_PART, ROOMY * _sentences(early))
    placed: dict[int, Fact] = {}
    for group, within in ((early, range(part)), (late, range(part, turns))):
        turns_of_group = rng.sample(within, _sentences(group))
        for fact in group:
            places = sorted(turns_of_group.pop() for _ in range(_sentences([fact])))
            placed |= zip(places, _said(fact), strict=True)
    return placed


def _sentences(facts: Sequence[Fact]) -> int:
    return sum(2 if fact.withdrawn else 1 for fact in facts)


def _said(fact: Fact) -> tuple[Fact, ...]:
    """Return a fact as it is said; before a correction stands what it corrects."""
    if not fact.withdrawn:
        return (fact,)
    thing = fact.sentence.removeprefix(CORRECTION).partition(" costs ")[0]
    stated = Fact(FactKind.WITHDRAWN, f"By the way, {thing} costs {fact.withdrawn}.", fact.withdrawn)
    return (stated, fact)


def _is_pin(fact: Fact | None) -> bool:
    return fact is not None and fact.kind is FactKind.PIN


def _make_facts(rng: random.Random, instructions: Sequence[str]) -> list[Fact]:
    numbers = rng.sample(range(10_000, 99_999), 2000)
    free = _free_form(rng)
    rules = iter(rng.sample(list(instructions), PLANTED[FactKind.INSTRUCTION]))
    kinds = [kind for kind, times in PLANTED.items() for _ in range(times)]
    return [_make_fact(kind, (numbers.pop(), numbers.pop()), free, rules) for kind in kinds]


def _make_fact(kind: FactKind, numbers: tuple[int, int], free: Iterator[str], rules: Iterator[str]) -> Fact:
    number = numbers[0]
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
        case FactKind.CORRECTION | FactKind.WITHDRAWN:
            return _correction(numbers)


def _correction(numbers: tuple[int, int]) -> Fact:
    wrong, right = (f"{number:,} euros" for number in numbers)
    thing = f"{THINGS[numbers[0] % len(THINGS)]} number {numbers[1] % 89} under {NAMES[numbers[1] % len(NAMES)]}'s bed"
    sentence = f"{CORRECTION}the {thing} costs not {wrong.removesuffix(' euros')} but {right}."
    return Fact(FactKind.CORRECTION, sentence, key=right, withdrawn=wrong)


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
    lines = [said["content"] for meeting in json_lines(SAMPLE / "qmsum") for said in meeting["meeting_transcripts"]]
    return [line[:FILLER_CHARACTERS] for line in lines if len(line) > 20]


def _service_lines() -> list[str]:
    runs: list[Json] = json.loads((SAMPLE / "tau-bench" / "gpt-4o-airline.json").read_text(encoding="utf-8"))
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
