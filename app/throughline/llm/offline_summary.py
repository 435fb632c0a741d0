"""The offline model's summaries: the first sentence of each message, with its position."""

import re
from collections.abc import Callable, Iterator

INTRODUCTION = "I am Throughline's offline model"
"""The model's own answers are not worth keeping."""

NOTHING = "Nothing of substance yet."
SHORT_CHARACTERS = 8
"""A sentence below this length says next to nothing: `ok`, `Noted.`"""

MAX_CHARACTERS = 300
LONGEST_LINE = 2 * MAX_CHARACTERS
"""Lines of an earlier summary are no longer than this: one of them alone has to fit."""

SMALL_SUMMARY_TOKENS = 160
"""A summary of so many tokens is small, whatever it stands for. Above that a third of a record is kept."""

_SENTENCE = re.compile(r"[^.!?。！？\n]++(?:[.!?](?!\s|$)[^.!?。！？\n]*+)*+[.!?。！？]*+")
_HEAD = re.compile(r"^\[#(\d+) (user|assistant|tool)[^\[\]\n]*+\] ?", re.MULTILINE)
_PART_HEAD = re.compile(r"(?:\[#\d+-#\d+\]|#.*|\W*)")
_CITED = re.compile(r"\[#(\d+)(?:-#\d+)?\]\Z")
_TAG = re.compile(r"\[#\d+[^\[\]\n]{0,80}\]\s*+")


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of `text` in order, shortened to what is worth quoting."""
    for match in _SENTENCE.finditer(text):
        sentence = " ".join(match.group().split()).removeprefix("- ")
        if any(character.isalnum() for character in sentence):
            yield sentence[:MAX_CHARACTERS]


def summarise(existing: str, record: str, *, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the lines of `existing`, earlier summaries, and one for each message of `record`, in `max_tokens`.

    Where they are too many, each part of the conversation keeps one.
    """
    kept = (
        line[:LONGEST_LINE] for line in existing.split("\n") if not _PART_HEAD.fullmatch(line) and NOTHING not in line
    )
    lines = list(dict.fromkeys((*kept, *_lines_of(record))))
    size = count(existing)
    most = size + count(record) // 3 if record else size * 9 // 10
    budget = min(max_tokens, max(most, SMALL_SUMMARY_TOKENS))
    return "\n".join(_thinned(lines, budget, count)) or f"- {NOTHING}"


def _lines_of(record: str) -> list[str]:
    heads = list(_HEAD.finditer(record))
    ends = [head.start() for head in heads[1:]] + [len(record)]
    said = [(head[1], head[2], _first(record[head.end() : end])) for head, end in zip(heads, ends, strict=False)]
    worth = [one for one in said if len(one[2]) >= SHORT_CHARACTERS and INTRODUCTION not in one[2]]
    return [
        f"- {'' if role == 'user' else f'{role}: '}{text} [#{position}]"
        for position, role, text in worth or said
        if text
    ]


def _first(text: str) -> str:
    """Return the first sentence without anything that looks like a position's tag."""
    plain = _TAG.sub("", text.partition("\n[#")[0])
    return next((sentence for sentence in sentences_of(plain) if not sentence.startswith("```")), "")


def _thinned(lines: list[str], budget: int, count: Callable[[str], int]) -> list[str]:
    """Return the lines if they fit, else the newest of each part of the conversation; one line at least."""
    sizes = {line: count(line) + 1 for line in lines}
    positions = [int(found[1]) if (found := _CITED.search(line)) else 0 for line in lines]
    chosen, parts, last = lines, len(lines), max(positions, default=0)
    while len(chosen) > 1 and sum(sizes[line] for line in chosen) > budget:
        parts = parts * 7 // 8
        chosen = list({at * parts // (last + 1): line for at, line in zip(positions, lines, strict=True)}.values())
    return chosen
