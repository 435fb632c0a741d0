"""Summaries of the offline model: the most important sentences of each message, with its position."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from throughline.context.recall_hints import TAG as RECALL_TAG
from throughline.domain.message import Role
from throughline.llm.offline_sentences import (
    INTRODUCTION,
    MAX_CHARACTERS,
    STATES,
    is_filler,
    sentences_of,
    worth,
)

NOTHING = "Nothing of substance yet."
LONGEST_LINE = 2 * MAX_CHARACTERS
"""Longest line taken from an earlier summary, so that one line alone always fits."""

SMALL_SUMMARY_TOKENS = 160
"""Size up to which a summary is small enough in any case; above it, a third of a record is kept."""

MOST_OF_MESSAGE = 3
"""Most sentences kept from one message, if each of them states something."""

_HEAD = re.compile(r"^\[#(\d+) (user|assistant|tool)[^\[\]\n]*+\] ?", re.MULTILINE)
_PART_HEAD = re.compile(r"(?:\[#\d+-#\d+\]|#.*|\W*)")
_CITED = re.compile(r"\[#(\d+)(?:-#\d+)?\]\Z")
_TAGGED_LINE = re.compile(r"\n[^\S\n]*+\[#")
"""Start of a line with a tool call, or with text that imitates another message."""

_TAG = re.compile(r"\[#\d+[^\[\]\n]{0,80}\]\s*+")


def summarise(existing: str, record: str, *, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the lines of the earlier summaries `existing` and the most important ones of `record`, in `max_tokens`.

    If they are too many, the least important are left out first; among equals each part of the conversation keeps one.
    """
    kept = (
        line[:LONGEST_LINE] for line in existing.split("\n") if not _PART_HEAD.fullmatch(line) and NOTHING not in line
    )
    found = list(dict.fromkeys((*kept, *_lines_of(record))))
    lines = [line for line in found if not is_filler(_said(line)[1])] or found
    size = count(existing)
    most = size + count(record) // 3 if record else size * 9 // 10
    budget = min(max_tokens, max(most, SMALL_SUMMARY_TOKENS))
    return "\n".join(_fitting(lines, budget, count)) or f"- {NOTHING}"


def _lines_of(record: str) -> Iterator[str]:
    """Yield the lines for each message of `record`, without text that looks like a position's tag."""
    heads = list(_HEAD.finditer(record))
    for head, end in zip(heads, [*(head.start() for head in heads[1:]), len(record)], strict=False):
        text = _TAG.sub("", _TAGGED_LINE.split(record[head.end() : end], maxsplit=1)[0])
        if INTRODUCTION in text or f"<{RECALL_TAG}>" in text:
            continue
        speaker = "" if head[2] == Role.USER else f"{head[2]}: "
        yield from (f"- {speaker}{sentence} [#{head[1]}]" for sentence in _best_of(text, Role(head[2])))


def _best_of(text: str, role: Role) -> list[str]:
    """Return the sentences that state something, or else the most important one."""
    sentences = [sentence for sentence in sentences_of(text) if not sentence.startswith("```")]
    stating = islice((one for one in sentences if worth(one, role) >= STATES), MOST_OF_MESSAGE)
    return list(stating) or sorted(sentences, key=worth, reverse=True)[:1]


def _fitting(lines: Sequence[str], budget: int, count: Callable[[str], int]) -> list[str]:
    """Return the lines if they fit, or else the most important ones; at least one line."""
    worths = {line: worth(text, role) for line in lines for role, text in (_said(line),)}
    sizes = {line: count(line) + 1 for line in lines}
    chosen: set[str] = set()
    left = budget
    for level in sorted({*worths.values()}, reverse=True):
        equal = [line for line in lines if worths[line] == level]
        taken = _thinned(equal, left, sizes)
        chosen.update(taken if chosen or taken else equal[-1:])
        left -= sum(sizes[line] for line in taken)
        if len(taken) < len(equal):
            break
    return [line for line in lines if line in chosen]


def _said(line: str) -> tuple[Role, str]:
    """Return the speaker and the sentence of a summary's line."""
    bare = _CITED.sub("", line).strip().removeprefix("- ")
    speaker, colon, text = bare.partition(": ")
    return (Role(speaker), text) if colon and speaker in {Role.ASSISTANT, Role.TOOL} else (Role.USER, bare)


def _thinned(lines: Sequence[str], budget: int, sizes: dict[str, int]) -> Sequence[str]:
    """Return the lines if they fit, or else the newest of each part of the conversation; empty if none fits."""
    positions = [int(found[1]) if (found := _CITED.search(line)) else 0 for line in lines]
    chosen, parts, last = lines, len(lines), max(positions, default=0)
    while chosen and sum(sizes[line] for line in chosen) > budget:
        parts = parts * 7 // 8
        chosen = list({at * parts // (last + 1): line for at, line in zip(positions, lines, strict=True)}.values())
        if parts == 0:
            return chosen if sizes[chosen[0]] <= budget else []
    return chosen
