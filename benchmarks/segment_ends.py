"""How many ends of segments lie where people say that the subject of a meeting changes (topics of QMSum).

`python -m benchmarks.segment_ends` runs on a small sample; `--data FOLDER` takes QMSum's own files, `--files NAME`
those that match. An end is right if a topic begins at most two messages away. Precision is the share of ends that are
right, recall the share of borders between topics that have such an end.

First as many ends as there are borders are chosen in the whole meeting; then segment after segment, as the service
does, for several sizes of what one segment may hold. The same is done for excerpts of different meetings joined to one
talk, as in F. Choi, "Advances in domain independent linear text segmentation", NAACL 2000: there the subject surely
changes.

Tuned on `all_val`, `academic_train` and `committee_train`, told of `all_test`. Pauses are not measured: QMSum has no
times, and the chats with times among our data have no borders of topics.
"""

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from benchmarks.figures import aligned
from benchmarks.replay_data import SAMPLE, Json, json_lines
from benchmarks.retrieval_readers import NOISE
from throughline.context.summaries.fact_subjects import words_of
from throughline.context.summaries.segment_ends import best_end, fitting_pieces, valley_depths, well_filled
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.message import Message, Role, Source, text_of

TOLERANCE = 2
APART = 2 * TOLERANCE + 1
"""Ends chosen in a whole meeting are so far apart at least: two that lie closer would find one border twice."""

ROOMS = (1000, 2000, 4000, 8000)
CHARACTERS_PER_TOKEN = 4
TALKS, EXCERPTS, EXCERPT_LINES = 20, 8, (20, 120)
"""Talks are made of so many excerpts of different meetings, each of so many lines."""

REPETITIONS = 20
"""Chance is the mean of so many tries."""

Pieces = Sequence[Sequence[Message]]
Choose = Callable[[Pieces, int], int]
"""Returns after how many pieces a segment ends, of which so many fit, as `best_end` does."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What was said, each line as a message of a user, and the borders: before which lines a further topic begins."""

    messages: tuple[Message, ...]
    borders: tuple[int, ...]


@dataclass(slots=True)
class Score:
    """Ends that were chosen and how many are right, borders and how many of them were found."""

    ends: int = 0
    right: int = 0
    borders: int = 0
    found: int = 0

    def add(self, ends: Sequence[int], borders: Sequence[int]) -> None:
        """Count one meeting."""
        self.ends += len(ends)
        self.right += _near(ends, borders)
        self.borders += len(borders)
        self.found += _near(borders, ends)

    def cell(self, repetitions: int = 1) -> str:
        """Return precision, recall, and how many ends there were in one try."""
        precision, recall = self.right / max(self.ends, 1), self.found / max(self.borders, 1)
        return f"{precision:.1%}, {recall:.1%} ({self.ends // repetitions})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = _parse(arguments)
    meetings = read_meetings(options.data, options.files)
    if not meetings:
        print(f"There are no meetings with topics in {options.data}.", file=sys.stderr)
        return 1
    headings = ["precision, recall (ends)", "whole meeting", *(f"{room} tokens" for room in ROOMS), "all rooms"]
    for what, measured in (("meetings", meetings), ("talks of joined excerpts", joined_talks(meetings))):
        print(f"{len(measured)} {what}, {sum(len(meeting.borders) for meeting in measured)} borders\n")
        print(f"{aligned([headings, *report(measured)])}\n")
    return 0


def read_meetings(folder: Path, files: str = "*.jsonl") -> tuple[Meeting, ...]:
    """Return the meetings of the files of the folder whose names match; those without two topics are left out."""
    meetings = (_meeting(read) for read in json_lines(folder, files))
    return tuple(meeting for meeting in meetings if meeting.borders)


def joined_talks(meetings: Sequence[Meeting]) -> tuple[Meeting, ...]:
    """Return talks made of excerpts, the same in each run; their borders are where one follows the other."""
    generator = random.Random(TALKS)
    return tuple(_joined(generator, generator.sample(meetings, min(EXCERPTS, len(meetings)))) for _ in range(TALKS))


def _joined(generator: random.Random, meetings: Sequence[Meeting]) -> Meeting:
    messages: list[Message] = []
    borders = []
    for meeting in meetings:
        borders.append(len(messages))
        lines = generator.randint(*EXCERPT_LINES)
        start = generator.randrange(max(len(meeting.messages) - lines, 1))
        messages.extend(meeting.messages[start : start + lines])
    return Meeting(tuple(messages), tuple(borders[1:]))


def report(meetings: Sequence[Meeting]) -> list[list[str]]:
    """Return a row for each way of choosing ends."""
    ways: list[tuple[str, int, Callable[[int], Choose], Callable[[Meeting, int], list[int]]]] = [
        ("fixed sizes", 1, lambda _: lambda _pieces, fitting: fitting, lambda meeting, _: even_ends(meeting)),
        ("chance", REPETITIONS, chance, chance_ends),
        ("cohesion", 1, lambda _: best_end, lambda meeting, _: cohesive_ends(meeting)),
    ]
    return [
        [name, score_of(meetings, whole, times).cell(times), *_cells(meetings, way, times)]
        for name, times, way, whole in ways
    ]


def score_of(meetings: Iterable[Meeting], choose: Callable[[Meeting, int], list[int]], times: int) -> Score:
    """Return the score of `choose`, which gets each meeting and the number of the try."""
    score = Score()
    for meeting in meetings:
        for number in range(times):
            score.add(choose(meeting, number), meeting.borders)
    return score


def _cells(meetings: Sequence[Meeting], way: Callable[[int], Choose], times: int) -> list[str]:
    whole = Score()
    cells = []
    for room in ROOMS:

        def choose(meeting: Meeting, number: int, room: int = room) -> list[int]:
            return segment_ends(meeting, room, way(number))

        score = score_of(meetings, choose, times)
        cells.append(score.cell(times))
        whole = Score(*(getattr(whole, name) + getattr(score, name) for name in Score.__slots__))
    return [*cells, whole.cell(times)]


def segment_ends(meeting: Meeting, room_tokens: int, choose: Choose) -> list[int]:
    """Return where the segments end that the service would make; the end of the meeting is none."""
    pieces = [(message,) for message in meeting.messages]
    ends: list[int] = []
    start = 0
    while True:
        rest = pieces[start:]
        fitting = fitting_pieces(rest, room_tokens, None, _tokens)
        if fitting >= len(rest):
            return ends
        start += choose(rest, fitting)
        ends.append(start)


def even_ends(meeting: Meeting) -> list[int]:
    """Return as many ends as there are borders, all as far apart."""
    wanted, lines = len(meeting.borders), len(meeting.messages)
    return [round(lines * number / (wanted + 1)) for number in range(1, wanted + 1)]


def cohesive_ends(meeting: Meeting) -> list[int]:
    """Return as many ends as there are borders, in the deepest valleys of similarity."""
    depths = valley_depths([words_of(text_of(message.content)) for message in meeting.messages])
    ends: list[int] = []
    for line in sorted(range(1, len(depths)), key=lambda line: -depths[line]):
        if len(ends) < len(meeting.borders) and all(abs(line - end) >= APART for end in ends):
            ends.append(line)
    return ends


def chance_ends(meeting: Meeting, seed: int) -> list[int]:
    """Return as many ends as there are borders, anywhere."""
    return random.Random(seed).sample(range(1, len(meeting.messages)), len(meeting.borders))


def chance(seed: int) -> Choose:
    """Return a choice among all ends that leave a segment well filled."""
    generator = random.Random(seed)
    return lambda pieces, fitting: generator.choice(well_filled(pieces[:fitting]))


def _near(places: Sequence[int], others: Sequence[int]) -> int:
    """Return how many of the places have one of the others within the tolerance."""
    return sum(any(abs(place - other) <= TOLERANCE for other in others) for place in places)


def _tokens(text: str) -> int:
    return len(text) // CHARACTERS_PER_TOKEN


def _meeting(read: Json) -> Meeting:
    said = read["meeting_transcripts"]
    messages = tuple(_message(line, said["speaker"], said["content"]) for line, said in enumerate(said))
    spans = (span for topic in read.get("topic_list", ()) for span in topic["relevant_text_span"])
    starts = sorted({int(first) for first, _ in spans})
    return Meeting(messages, tuple(start for start in starts[1:] if start < len(messages)))


def _message(line: int, speaker: str, content: str) -> Message:
    return Message(
        id=MessageId(UUID(int=line)),
        session_id=SessionId(UUID(int=0)),
        position=line + 1,
        role=Role.USER,
        content=NOISE.sub("", content),
        source=Source.API,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        author=speaker,
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.segment_ends", description=__doc__)
    parser.add_argument("--data", type=Path, default=SAMPLE / "qmsum", help="folder with QMSum's *.jsonl")
    parser.add_argument("--files", default="*.jsonl", help="which of them, such as all_test.jsonl")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
