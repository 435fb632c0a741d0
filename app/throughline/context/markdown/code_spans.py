"""Code spans of a Markdown text: the parts between backticks within a line or a paragraph."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

_TICKS = re.compile(r"(?<!\\)(\\*+)(`++)")


@dataclass(frozen=True, slots=True)
class Span:
    """A code span: its start and end in the line, including the backticks, and the backticks themselves."""

    start: int
    end: int
    ticks: str


def spans(line: str) -> tuple[Sequence[Span], bool]:
    """Return the code spans of a line, and whether unmatched backticks may begin a span that ends in a later line.

    A span ends at as many backticks as began it. A backslash escapes the first backtick after it.
    """
    runs = list(_TICKS.finditer(line))
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for run in runs:
        by_length[len(run[2])].append(run.start(2))
    found, at, leaves_open = list[Span](), 0, False
    for run in runs:
        begins, end = run.start(2) + len(run[1]) % 2, run.end()
        if begins < at or begins == end:
            continue
        closers = by_length[end - begins]
        closer = bisect_right(closers, begins)
        if closer == len(closers):
            leaves_open = True
            continue
        at = closers[closer] + end - begins
        found.append(Span(begins, at, line[begins:end]))
    return found, leaves_open
