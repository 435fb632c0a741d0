"""Long made-up conversations: small talk around facts as people state them, correct them and take them back.

What is said stands in `data/planted/*.json` (the format: `data/SOURCE.md`); a seed fills its slots and places it.
"""

import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from benchmarks.replay_data import SAMPLE, Json, json_lines
from throughline.context.measure import Count, count_message
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.message import Message, NewMessage, Role, Source

SESSION = SessionId(UUID(int=1))
BEGIN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
HELD_OUT = "held_out.json"
"""Holds the kinds that nobody looks at who works on the engine."""

SHORT_CHARACTERS, FILLER_CHARACTERS = 20, 600
SERVICE_EVERY = 10
"""A recorded line is longer than the first and cut at the second; every tenth text is one of a service conversation."""

EARLY_PART = 50
"""The first of each list in the data stands in this part of the conversation: before the first compaction."""

LEAST_TURNS = 200
"""About two turns for each planted sentence, or a conversation would consist of facts."""

ECHOED_EVERY = 2
"""Of every second fact the assistant repeats the value in its next message."""

SHORT_TURNS, STALE_TURNS = 2, 40
"""Within so many turns follow a correction in few words, and the assistant's echo of an old value."""

LOG_LINES = 42
LEAD = " ^ "
"""Stands in the data between the first sentence of a message and the one that carries the fact."""

CORRECTION, WITHDRAWAL, PIN, SIBLING = "correction", "withdrawal", "pin", "sibling"
_SLOT = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Script:
    """A kind of conversation: what its data file says of it and of its language, fields picked by name."""

    name: str
    said: Json
    language: Json


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that a user states at `position`; it is in a prompt if all `needles` stand in one line of it.

    `heading` is the row it is counted in: its kind, or what else it is; a WITHDRAWAL is not looked for itself.
    `message` is all that is said there, `sentence` the part that carries the fact. `withdraws` is the position of the
    statement that no longer holds from here on.
    """

    kind: str
    heading: str
    subject: str
    sentence: str
    needles: tuple[str, ...]
    value: str
    message: str
    position: int = 0
    withdraws: int = 0

    @property
    def told(self) -> str:
        """What somebody who tells it again would say: a short correction says nothing without its subject."""
        return self.sentence if stands(self.needles, lines_of(self.sentence)) else f"{self.subject}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Planted:
    """A conversation and the facts in it, both by position. `echoes` are positions where the assistant names one."""

    messages: tuple[Message, ...]
    facts: tuple[Fact, ...]
    echoes: tuple[int, ...]
    script: Script


def lines_of(text: str) -> list[str]:
    """Return the lines as needles are looked for in them: casefolded, white space single."""
    return [" ".join(line.casefold().split()) for line in text.splitlines()]


def stands(needles: Sequence[str], lines: Sequence[str]) -> bool:
    """Whether all needles stand together in one of the lines."""
    return any(all(needle in line for needle in needles) for line in lines)


def read_scripts(*, held_out: bool = False) -> tuple[Script, ...]:
    """Return the kinds of conversation, in the order of the files' names; of the held-out ones only on request."""
    files = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted((SAMPLE / "planted").iterdir())}
    languages = {name: words for file in files.values() for name, words in file["languages"].items()}
    return tuple(
        Script(kind, said, {**languages[said["language"]], "log": languages["en"]["log"]})
        for name, file in files.items()
        if (name == HELD_OUT) is held_out
        for kind, said in file["kinds"].items()
    )


def plant(turns: int, seed: int, script: Script, count: Count) -> Planted:
    """Return a conversation of `turns` user messages and as many answers; the planted ones are spread over it.

    Raises ValueError for fewer turns than LEAST_TURNS.
    """
    if turns < LEAST_TURNS:
        raise ValueError(f"{turns} turns are too few for what is planted: at least {LEAST_TURNS} are needed")
    rng = random.Random(f"{script.name} {seed}")
    placed = _place(_Slots(script, rng).facts(), turns, rng)
    answers = _answers(placed, turns, script.language, rng)
    filler, authors = _filler(script, rng), script.said["authors"] or [None]
    messages: list[Message] = []
    for turn in range(turns):
        fact = placed.get(turn)
        text = next(filler) if fact is None else fact.message
        user = NewMessage(Role.USER, text, Source.API, author=rng.choice(authors))
        messages.append(_stored(2 * turn + 1, user, count, is_pinned=fact is not None and fact.heading == PIN))
        answer = NewMessage(Role.ASSISTANT, answers.get(turn) or next(filler), Source.API)
        messages.append(_stored(2 * turn + 2, answer, count))
    facts = tuple(fact for _, fact in sorted(placed.items()))
    return Planted(tuple(messages), facts, tuple(2 * turn + 2 for turn in answers), script)


class _Slots:
    """Makes facts of a script's rows, with its slots filled."""

    def __init__(self, script: Script, rng: random.Random) -> None:
        self._script, self._rng = script, rng
        slots = {**script.language["slots"], **script.said["slots"]}
        self._lists = {name: itertools.cycle(rng.sample(words, len(words))) for name, words in slots.items()}
        self._drawn: set[str] = set()

    def facts(self) -> list[list[tuple[Fact, ...]]]:
        """Return lists of what is said: each a fact, a statement and what takes it back, or two that hold."""
        said = self._script.said
        groups: list[list[tuple[Fact, ...]]] = [
            [(self._fact(kind, *row),) for row in rows] for kind, rows in said["facts"].items()
        ]
        groups.append([(self._in_log(*row),) for row in said["logs"]])
        groups.append([(self._fact("instruction", *row),) for row in said["instructions"]])
        groups.append([(replace(self._fact("value", *row), heading=PIN),) for row in said["pins"]])
        groups.append([self._correction(*row) for row in said["corrections"]])
        groups.append([self._withdrawal(*row) for row in said["withdrawals"]])
        groups.append([self._siblings(*row) for row in said["siblings"]])
        return groups

    def _fact(self, kind: str, subject: str, said: str, *needles: str, **known: str) -> Fact:
        subject, said, *needles_said = self._fill((subject, said, *needles), known)
        sentence, message = said.rpartition(LEAD)[2], said.replace(LEAD, " ")
        folded = tuple(lines_of("\n".join(needles_said)))
        return Fact(kind, kind, subject, sentence, folded, needles_said[-1], message)

    def _in_log(self, subject: str, line: str, *needles: str) -> Fact:
        fact = self._fact("error", subject, line, *needles)
        at, forms = BEGIN + timedelta(seconds=self._rng.randrange(80_000)), self._script.language["log"]
        lines = [self._fill([form], {})[0] for form in self._rng.choices(forms, k=LOG_LINES - 1)]
        lines.insert(self._rng.randrange(10, LOG_LINES - 5), fact.sentence)
        timed = [f"{at + timedelta(milliseconds=373 * number):%F %T.%f} {text}" for number, text in enumerate(lines)]
        return replace(fact, message="\n".join((*self._script.language["log_intro"], *timed)))

    def _correction(self, kind: str, subject: str, pattern: str, *said: str) -> tuple[Fact, ...]:
        statement, correction, *needles = said
        old, new = self._fill([pattern], {})[0], self._fill([pattern], {})[0]
        while old == new:
            new = self._fill([pattern], {})[0]
        stated = self._fact(kind, subject, statement, *needles, v=old)
        corrected = self._fact(kind, subject, correction, *needles, v=new, old=old)
        return (replace(stated, value=old), replace(corrected, value=new, heading=CORRECTION))

    def _withdrawal(self, kind: str, subject: str, statement: str, withdrawal: str, *needles: str) -> tuple[Fact, ...]:
        stated = self._fact(kind, subject, statement, *needles)
        return (stated, replace(self._fact(kind, subject, withdrawal, withdrawal), heading=WITHDRAWAL))

    def _siblings(self, kind: str, *rows: Sequence[str]) -> tuple[Fact, ...]:
        return tuple(replace(self._fact(kind, *row), heading=SIBLING) for row in rows)

    def _fill(self, templates: Sequence[str], known: dict[str, str]) -> list[str]:
        """Fill the slots; one of the same name has the same value in all templates."""
        values = dict(known)
        for slot in itertools.chain.from_iterable(map(_SLOT.findall, templates)):
            if slot not in values:
                values[slot] = next(self._lists[slot]) if slot in self._lists else self._digits(slot)
        return [_SLOT.sub(lambda found: values[found[1]], template) for template in templates]

    def _digits(self, pattern: str) -> str:
        """Put a digit for each `#`, for three and more another number each time."""
        while True:
            text = re.sub("#", lambda found: str(self._rng.randrange(found.start() == 0, 10)), pattern)
            if text not in self._drawn or pattern.count("#") < 3:
                self._drawn.add(text)
                return text


def _place(groups: Sequence[Sequence[tuple[Fact, ...]]], turns: int, rng: random.Random) -> dict[int, Fact]:
    """Return the facts by turn: the first of each group near the beginning, the others all over the conversation.

    A correction that does not name its subject follows within SHORT_TURNS.
    """
    part = max(turns // EARLY_PART, 3 * len(groups))
    placed: dict[int, Fact] = {}
    for number, facts in sorted(itertools.chain(*map(enumerate, groups)), key=lambda said: not _is_short(said[1])):
        within = range(part) if number == 0 else range(part, turns)
        free = [turn for turn in within if turn not in placed]
        first = rng.choice([turn for turn in free[: -len(free) // 4] if turn + 1 not in placed])
        placed[first] = replace(facts[0], position=2 * first + 1)
        if len(facts) > 1:
            last = first + SHORT_TURNS if _is_short(facts) else within[-1]
            second = rng.choice([turn for turn in free if first < turn <= last])
            withdraws = 0 if facts[1].heading == SIBLING else 2 * first + 1
            placed[second] = replace(facts[1], position=2 * second + 1, withdraws=withdraws)
    return placed


def _is_short(facts: Sequence[Fact]) -> bool:
    return facts[-1].told != facts[-1].sentence


def _answers(placed: dict[int, Fact], turns: int, language: Json, rng: random.Random) -> dict[int, str]:
    """Return by turn what the assistant says of facts: every second one again, and of corrections the old value."""

    def answer(form: str, fact: Fact) -> str:
        return str(rng.choice(language[form])).replace("{s}", fact.subject).replace("{v}", fact.value)

    named = (turn for turn in sorted(placed) if placed[turn].heading != WITHDRAWAL)
    answers = {turn: answer("echo", placed[turn]) for turn in itertools.islice(named, 0, None, ECHOED_EVERY)}
    for turn, fact in sorted(placed.items()):
        if fact.heading == CORRECTION:
            free = [after for after in range(turn, min(turn + STALE_TURNS, turns)) if after not in answers]
            answers[rng.choice(free or [turn])] = answer("stale", placed[fact.withdraws // 2])
    return answers


def _filler(script: Script, rng: random.Random) -> Iterator[str]:
    """Yield small talk in the script's language, again and again; in English it was recorded."""
    language = script.language
    if "filler" in language:
        slots = language["slots"]
        while True:
            line = rng.choice(language["filler"])
            yield line.replace("{a}", rng.choice(slots["a"])).replace("{b}", rng.choice(slots["b"]))
    talk = [said["content"] for meeting in json_lines(SAMPLE / "qmsum") for said in meeting["meeting_transcripts"]]
    runs: list[Json] = json.loads((SAMPLE / "tau-bench" / "gpt-4o-airline.json").read_text(encoding="utf-8"))
    said = [message for run in runs for message in run["traj"] if message["role"] in {"user", "assistant"}]
    calls = itertools.cycle([message["content"] for message in said if message.get("content")])
    lines = itertools.cycle([line for line in talk if len(line) > SHORT_CHARACTERS])
    for _ in range(rng.randrange(len(talk))):
        next(lines)
    for number in itertools.count(1):
        yield next(calls if number % SERVICE_EVERY == 0 else lines)[:FILLER_CHARACTERS]


def _stored(position: int, message: NewMessage, count: Count, *, is_pinned: bool = False) -> Message:
    return Message(
        id=MessageId(UUID(int=position)),
        session_id=SESSION,
        position=position,
        role=message.role,
        content=message.content,
        source=message.source,
        created_at=BEGIN + timedelta(minutes=position),
        author=message.author,
        token_count=count_message(message, count),
        counter="benchmark",
        pinned=is_pinned,
    )
