"""Facts that are certain by their form (paths, ids, errors, …), kept verbatim without a model call.

Every summary calls it for each of its messages. From what a person or the assistant says, the whole sentence is kept,
so that its meaning survives. From tool outputs and pasted text, only the token or the error's line is kept.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from throughline.context.summaries.fact_patterns import Found, find_forms
from throughline.context.summaries.readable_text import readable, scanned
from throughline.context.summaries.sentences import one_line, sentences_of
from throughline.context.summaries.strip_pasted import without_pasted_blocks
from throughline.domain.kept_facts import FactKind, KeptFact
from throughline.domain.message import Message, Role, text_of

FACT_CHARACTERS = 240
"""Longest fact: a longer sentence is cut to the words around its fact; a longer error or command ends in `…`."""

SUBJECT_CHARACTERS = 80
"""Longest subject of an error or a command; a longer one ends in `…`."""

MAX_SPOKEN_FACTS = 30
"""Most facts taken from the own words of one message of a person or the assistant."""

MAX_OUTPUT_FACTS = 12
"""Most facts taken from one tool output, one call's arguments, or all pasted text of one message."""

LOG_LINES = 8
"""Number of lines with the same kind of beginning (a time or a level) that count as a log."""

LOOK_CHARACTERS, LOOK_NUMBERS = 24, 3
"""Characters of a line that are compared, and how many numbers of a date, time or address they must contain."""


@dataclass(frozen=True, slots=True)
class _Quote:
    """A fact before it has a position in the session; `start` is its offset in the text."""

    start: int
    kind: FactKind
    text: str
    subject: str


def structured_facts(message: Message) -> tuple[KeptFact, ...]:
    """Return the facts of a message in order of appearance, each once; those of its tool calls come last.

    Each stands word for word in the message, with single spaces, or in a text inside its JSON. Of a huge text only head
    and tail are read. The time is linear in the text read.
    """
    text = text_of(message.content)
    quotes = _of_output(readable(text)) if message.role is Role.TOOL else _of_speech(text)
    for call in message.tool_calls:
        quotes += _of_output(readable(call.arguments))
    once: dict[tuple[FactKind, str], KeptFact] = {}
    for quote in quotes:
        fact = KeptFact(quote.kind, quote.text, message.position, message.role, quote.subject)
        once.setdefault((quote.kind, quote.text), fact)
    return tuple(once.values())


def _of_output(text: str) -> list[_Quote]:
    return _tokens(scanned(text))


def _of_speech(text: str) -> list[_Quote]:
    text = scanned(text)
    own = _own_words(text)
    pasted = "".join("\n" if letter == kept else letter for letter, kept in zip(text, own, strict=True))
    quotes = [*islice(_sentences(own), MAX_SPOKEN_FACTS), *_tokens(pasted)]
    return sorted(quotes, key=lambda quote: quote.start)


def _tokens(text: str) -> list[_Quote]:
    """Return the facts of tool output or pasted text, each subject once; if there are too many, errors come first."""
    once: dict[tuple[FactKind, str], Found] = {}
    for item in find_forms(text, is_spoken=False):
        once.setdefault((item.kind, item.subject), item)
    kept = sorted(once.values(), key=lambda item: item.rank)[:MAX_OUTPUT_FACTS]
    return [
        _quote(text, item, item.start, item.stop, item.subject) for item in sorted(kept, key=lambda item: item.start)
    ]


def _sentences(own: str) -> Iterator[_Quote]:
    """Yield the sentences that contain a fact; the first fact in a sentence determines its kind and subject."""
    sentences = sentences_of(own)
    first = last = end = 0
    for item in find_forms(own, is_spoken=True):
        while last <= item.start:
            first, last = next(sentences, (item.start, item.stop))
        if item.start < end:
            continue
        start, end = _around(own, item, min(first, item.start), max(last, item.stop))
        subject = own[item.start : last].rstrip(_ENDS) if item.kind is FactKind.ERROR else item.subject
        yield _quote(own, item, start, end, subject)


def _around(text: str, item: Found, first: int, last: int) -> tuple[int, int]:
    """Return the offsets of the sentence, or of as many whole words around the fact as fit.

    A command not ended by a backtick stands alone after a prompt; only the command itself is returned.
    """
    if item.kind is FactKind.COMMAND and not text.startswith("`", item.stop):
        return item.start, item.stop
    if len(" ".join(text[first:last].split())) <= FACT_CHARACTERS:
        return first, last
    room = max(0, FACT_CHARACTERS - (item.stop - item.start))
    stop = min(last, max(first, item.start - room // 2) + FACT_CHARACTERS)
    start = max(first, stop - FACT_CHARACTERS)
    before = text[start : item.start] if start == first else text[start : item.start].partition(" ")[2]
    behind = text[item.stop : stop] if stop == last else text[item.stop : stop].rpartition(" ")[0]
    return item.start - len(before), item.stop + len(behind)


def _quote(text: str, item: Found, start: int, stop: int, subject: str) -> _Quote:
    quote = one_line(text[start:stop], FACT_CHARACTERS)
    return _Quote(start, item.kind, quote, one_line(subject, SUBJECT_CHARACTERS))


def _own_words(text: str) -> str:
    """Blank out pasted text, including logs; the rest keeps its offsets."""
    lines = without_pasted_blocks(text).ljust(len(text), "\n").split("\n")
    looks = [_look(line) for line in lines]
    counts = Counter(look for look in looks if look)
    return "\n".join(
        "\n" * len(line) if counts[look] >= LOG_LINES else line for line, look in zip(lines, looks, strict=True)
    )


def _look(line: str) -> str:
    """Return the pattern of a log line's beginning, such as `0-0-0 0:0`, or 'level'; '' for other lines."""
    if _LEVEL.match(line):
        return "level"
    look = _LETTERS.sub("a", _DIGITS.sub("0", line[:LOOK_CHARACTERS]))[:8]
    return look if look.count("0") >= LOOK_NUMBERS else ""


_ENDS = " \t\n.!?…"
_DIGITS, _LETTERS = re.compile(r"\d+"), re.compile(r"[^\W\d_]+")
_LEVEL = re.compile(r"[\[<(]?(?:TRACE|DEBUG|INFO|NOTICE|WARN|ERROR|FATAL)")
