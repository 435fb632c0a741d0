"""Conversations with questions and the lines that answer them, as the retrieval benchmark reads them.

Two formats are known: QMSum's meetings (`*.jsonl`), and LoCoMo's dialogues of two people over many days (`*.json`,
https://github.com/snap-research/locomo).
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.replay_data import Json, json_lines

NOISE = re.compile(r"\{\w+\}\s*")
"""What transcribers wrote for a cough or an unclear word."""


EVIDENCE = re.compile(r"D\d+:\d+")
SECONDS_A_LINE = 30


@dataclass(frozen=True, slots=True)
class Line:
    """What one speaker said in one go, when, if that is known, and in which role."""

    speaker: str
    text: str
    at: datetime | None = None
    role: str = "user"


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the spans of lines (first and last, from 0) that people marked as its answer."""

    text: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Meeting:
    """A transcript and what was asked about it."""

    lines: tuple[Line, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Halves:
    """The meetings by turns: on one half the ranking is tuned, on the other it is reported."""

    tuned: tuple[Meeting, ...]
    reported: tuple[Meeting, ...]


def read_meetings(folder: Path) -> Halves:
    """Return the conversations of all `*.jsonl` and `*.json` files in the folder, in the order of names and lines."""
    dialogues = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    meetings = (*map(_meeting, json_lines(folder)), *map(_dialogue, dialogues))
    return Halves(meetings[::2], meetings[1::2])


def chained(meetings: Sequence[Meeting], count: int) -> Iterator[Line]:
    """Yield `count` lines: one meeting after the other, and from the first again."""
    lines = itertools.chain.from_iterable(meeting.lines for meeting in itertools.cycle(meetings))
    return itertools.islice(lines, count)


def _meeting(read: Json) -> Meeting:
    lines = tuple(Line(said["speaker"], NOISE.sub("", said["content"]) or "-") for said in read["meeting_transcripts"])
    questions = (
        Question(asked["query"], tuple((int(first), int(last)) for first, last in asked["relevant_text_span"]))
        for asked in read["specific_query_list"]
    )
    return Meeting(lines, tuple(question for question in questions if question.spans))


def _dialogue(read: Json) -> Meeting:
    """Return a LoCoMo dialogue. The lines of one sitting are SECONDS_A_LINE apart; each piece of evidence is a span."""
    lines: list[Line] = []
    places: dict[str, int] = {}
    for number in itertools.count(1):
        if (began := read.get(f"session_{number}_date_time")) is None:
            break
        start = datetime.strptime(began, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for place, said in enumerate(read.get(f"session_{number}", ())):
            places[said["dia_id"]] = len(lines)
            lines.append(Line(said["speaker"], said["text"], start + place * timedelta(seconds=SECONDS_A_LINE)))
    questions = (Question(asked["question"], _evidence(asked, places)) for asked in read["qa"])
    return Meeting(tuple(lines), tuple(question for question in questions if question.spans))


def _evidence(asked: Json, places: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    named = EVIDENCE.findall(" ".join(asked["evidence"]))
    return tuple((place, place) for place in sorted({places[name] for name in named if name in places}))
