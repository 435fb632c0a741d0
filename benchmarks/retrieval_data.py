"""Meetings with questions and the turns that answer them (QMSum), as the retrieval benchmark reads them."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.replay_data import Json, json_lines

NOISE = re.compile(r"\{\w+\}\s*")
"""What transcribers wrote for a cough or an unclear word."""


@dataclass(frozen=True, slots=True)
class Line:
    """What one speaker said in one go."""

    speaker: str
    text: str


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
    """Return the meetings of all `*.jsonl` files in the folder, in the order of names and lines."""
    meetings = tuple(map(_meeting, json_lines(folder)))
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
