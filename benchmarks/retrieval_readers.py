"""Reads the conversations of the retrieval benchmark: four kinds of talk, each in the forms it is published in.

What stands in a folder decides what it is:

- `*.json` with `qa` and sessions: dialogues of two people over many days, as in LoCoMo
  (https://github.com/snap-research/locomo) and REALTALK (https://github.com/danny911kr/REALTALK)
- `*.jsonl` with `meeting_transcripts`: QMSum's meetings
- `N-chat.json` and `N-questions.json`: BEAM's chats of a user and an assistant
  (https://github.com/mohammadtavakoli78/BEAM)
- folders that `benchmarks.replay_readers` knows: recorded runs of agents with tools, which are given questions here
"""

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from benchmarks.replay_data import Conversation, Json, Turn, json_lines
from benchmarks.replay_readers import load_datasets
from benchmarks.retrieval_data import Halves, Line, Meeting, Question
from throughline.db.search.analyzer import Analyzer
from throughline.domain.message import ToolCall


class Kind(StrEnum):
    """The kinds of talk."""

    PEOPLE = "people over days"
    MEETINGS = "meetings"
    ASSISTANT = "a user and an assistant"
    AGENTS = "agents with tools"


CHAT, QUESTIONS = "-chat.json", "-questions.json"


def read_kinds(folders: Iterable[Path]) -> dict[Kind, Halves]:
    """Return the conversations of the folders by their kind, in the order of names and lines."""
    kinds: dict[Kind, Halves] = {}
    for folder in folders:
        names = sorted(path.name for path in folder.glob("*.json"))
        chats = [name.removesuffix(CHAT) for name in names if name.endswith(CHAT)]
        dialogues = [read for name in names if (read := _read_dialogue(folder / name)) is not None]
        found = {
            Kind.PEOPLE: _halves(dialogues),
            Kind.MEETINGS: _halves([_meeting(read) for read in json_lines(folder) if "meeting_transcripts" in read]),
            Kind.ASSISTANT: _halves_of_groups((name.rpartition("-")[0], read_chat(folder, name)) for name in chats),
            Kind.AGENTS: _halves_of_groups(_runs(folder)),
        }
        for kind, halves in found.items():
            if halves.of("all"):
                kinds[kind] = kinds.get(kind, Halves()) + halves
    return kinds


def _halves(meetings: Sequence[Meeting]) -> Halves:
    return Halves(tuple(meetings[::2]), tuple(meetings[1::2]))


def _halves_of_groups(named: Iterable[tuple[str, Meeting]]) -> Halves:
    """Return halves that each have every other conversation of every group."""
    groups: dict[str, list[Meeting]] = {}
    for name, meeting in named:
        groups.setdefault(name, []).append(meeting)
    return sum(map(_halves, groups.values()), Halves())


NOISE = re.compile(r"\{\w+\}\s*")
"""What transcribers wrote for a cough or an unclear word."""


def _meeting(read: Json) -> Meeting:
    lines = tuple(Line(said["speaker"], NOISE.sub("", said["content"]) or "-") for said in read["meeting_transcripts"])
    questions = (
        Question(asked["query"], tuple((int(first), int(last)) for first, last in asked["relevant_text_span"]))
        for asked in read.get("specific_query_list", ())
    )
    return Meeting(lines, tuple(question for question in questions if question.spans))


EVIDENCE = re.compile(r"D\d+:\d+")
SECONDS_A_LINE = 30
"""LoCoMo tells when a sitting began, and not when each of its lines was said."""


def _read_dialogue(path: Path) -> Meeting | None:
    """Return a dialogue, None if the file is none. Each piece of evidence is a span."""
    read = json.loads(path.read_text("utf-8"))
    if not isinstance(read, dict) or "qa" not in read:
        return None
    talk = read.get("conversation", read)
    lines: list[Line] = []
    places: dict[str, int] = {}
    for number in itertools.count(1):
        if (began := talk.get(f"session_{number}_date_time")) is None:
            break
        for place, said in enumerate(talk.get(f"session_{number}", ())):
            places[said["dia_id"]] = len(lines)
            text = said.get("text") or said.get("clean_text") or "-"
            lines.append(Line(said["speaker"], text, _said_at(said, began, place)))
    questions = (Question(asked["question"], _evidence(asked, places)) for asked in read["qa"])
    return Meeting(tuple(lines), tuple(question for question in questions if question.spans))


def _said_at(said: Json, began: str, place: int) -> datetime:
    """REALTALK tells the time of each line, LoCoMo that of the sitting."""
    if "date_time" in said:
        return datetime.strptime(said["date_time"], "%d.%m.%Y, %H:%M:%S").replace(tzinfo=UTC)
    start = datetime.strptime(began, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    return start + place * timedelta(seconds=SECONDS_A_LINE)


def _evidence(asked: Json, places: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    named = EVIDENCE.findall(" ".join(asked["evidence"]))
    return _lines({places[name] for name in named if name in places})


def _lines(places: Iterable[int]) -> tuple[tuple[int, int], ...]:
    return tuple((place, place) for place in sorted(places))


INDEX = re.compile(r"\s*->->[\d,\s]*$")
"""What BEAM's user messages end in: their place in the plan they were made from."""


def read_chat(folder: Path, name: str) -> Meeting:
    """Return a chat of BEAM's. Questions without sources, to which there is no answer, are left out."""
    batches: list[Json] = json.loads((folder / f"{name}{CHAT}").read_text("utf-8"))
    lines: list[Line] = []
    places: dict[int, int] = {}
    day: datetime | None = None
    for said in (said for batch in batches for turn in batch["turns"] for said in turn):
        day = _anchor(said.get("time_anchor")) or day
        places[said["id"]] = len(lines)
        at = day + timedelta(minutes=len(lines)) if day else None
        lines.append(Line("", INDEX.sub("", said["content"]) or "-", at, said["role"]))
    asked: dict[str, list[Json]] = json.loads((folder / f"{name}{QUESTIONS}").read_text("utf-8"))
    questions = (
        Question(question["question"], _lines({places[source] for source in sources if source in places}), ability)
        for ability, questions in asked.items()
        for question in questions
        for sources in [list(_ids(question.get("source_chat_ids")))]
    )
    return Meeting(tuple(lines), tuple(question for question in questions if question.spans))


def _anchor(text: str | None) -> datetime | None:
    try:
        return datetime.strptime(text or "", "%B-%d-%Y").replace(tzinfo=UTC)
    except ValueError:
        return None


def _ids(value: object) -> Iterator[int]:
    """Yield the ids in a list, or in a dict of such, however deep."""
    match value:
        case int():
            yield value
        case dict():
            yield from _ids(list(value.values()))
        case list():
            for part in value:
                yield from _ids(part)
        case _:
            pass


SESSION_MESSAGES = 200
"""Recorded runs are chained into sessions of at least so many messages."""

QUESTIONS_A_SESSION = 20
"""So many questions of each kind are made for a session."""

KNOWN_ITEM_WORDS = 5
KNOWN_ITEM_SHARE = 0.8
LEAST_WORDS = 8
ARGUMENT_CHARACTERS = 150
SEED = 1
_WORD = re.compile(r"[^\W\d_]{3,}")


def _runs(folder: Path) -> Iterator[tuple[str, Meeting]]:
    """Yield the recorded runs of agents as sessions with questions, each with the name of its data set."""
    rng = random.Random(SEED)
    for name, dataset in load_datasets(folder).items():
        for lines in () if dataset.is_talk else _sessions(dataset.conversations):
            yield name, Meeting(lines, (*_known_items(lines, rng), *_about_calls(lines, rng)))


def _sessions(conversations: Iterable[Conversation]) -> Iterator[tuple[Line, ...]]:
    """Yield sessions; what is left at the end is one too if it is half as long, or the only one."""
    lines: list[Line] = []
    count = 0
    for turn in itertools.chain.from_iterable(conversation.turns for conversation in conversations):
        lines += _lines_of(turn)
        if len(lines) >= SESSION_MESSAGES:
            yield tuple(lines)
            lines, count = [], count + 1
    if len(lines) >= SESSION_MESSAGES / 2 or (lines and not count):
        yield tuple(lines)


def _lines_of(turn: Turn) -> Iterator[Line]:
    yield Line("", turn.user)
    for step in turn.steps:
        calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in step.calls)
        yield Line("", step.text, role="assistant", calls=calls)
        for call in step.calls:
            yield Line("", call.result, role="tool", tool=call.name, call_id=call.id)


def _known_items(lines: Sequence[Line], rng: random.Random) -> Iterator[Question]:
    """Yield queries of somebody who knows a message and looks for it.

    Each word is drawn from the message or, less often, from the session, after Azzopardi, de Rijke and Balog, "Building
    simulated queries for known-item topics" (SIGIR 2007).
    """
    analyzer = Analyzer("english")
    words = [
        [word for word in _WORD.findall(line.searched.lower()) if not analyzer.is_stop_word(word)] for line in lines
    ]
    everything = list(itertools.chain.from_iterable(words))
    times = Counter(line.searched for line in lines)
    known = [at for at, line in enumerate(lines) if len(set(words[at])) >= LEAST_WORDS and times[line.searched] == 1]
    for at in rng.sample(known, min(QUESTIONS_A_SESSION, len(known))):
        drawn: dict[str, None] = {}
        while len(drawn) < KNOWN_ITEM_WORDS:
            drawn[rng.choice(words[at] if rng.random() < KNOWN_ITEM_SHARE else everything)] = None
        yield Question(" ".join(drawn), _lines({at}), "known item")


def _about_calls(lines: Sequence[Line], rng: random.Random) -> Iterator[Question]:
    """Yield questions after what a tool returned; their sources are the step that made the call, and the result."""
    calls = list(_calls(lines))
    times = Counter((call.name, call.arguments) for call, *_ in calls)
    once = [found for found in calls if times[found[0].name, found[0].arguments] == 1]
    for call, made, answered in rng.sample(once, min(QUESTIONS_A_SESSION, len(once))):
        if values := _values(call.arguments):
            text = f"What did {call.name} return for {values}?"
            yield Question(text, _lines({made, answered}), "tool call")


def _calls(lines: Sequence[Line]) -> Iterator[tuple[ToolCall, int, int]]:
    """Yield each call with the lines that make and that answer it, which stand together."""
    made = 0
    calls: Iterator[ToolCall] = iter(())
    for at, line in enumerate(lines):
        if line.calls:
            made, calls = at, iter(line.calls)
        elif line.tool:
            yield next(calls), made, at


def _values(arguments: str) -> str:
    """Return the values of a call's arguments on one line."""
    try:
        read = json.loads(arguments)
    except ValueError:
        read = arguments
    text = " ".join(map(str, read.values())) if isinstance(read, dict) else str(read)
    return " ".join(text.split())[:ARGUMENT_CHARACTERS]
