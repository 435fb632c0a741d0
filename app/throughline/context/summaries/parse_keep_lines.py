"""The lines in which a summary model names facts to keep verbatim, and the facts that are taken from them.

After its summary the answer continues with `KEEP:` and lines of the form `kind | subject | exact quote | #position`. A
line counts only if its quote stands in that message. Malformed lines are ignored and never invalidate the summary.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from throughline.context.summaries.readable_text import one_line, own_sentences, without_quotations
from throughline.domain.message import Message, Role, text_of
from throughline.domain.summary import FactKind, KeptFact

KEEP_TOKENS = 1000
"""Most tokens of the lines below `KEEP:` in an answer, about 30 lines; for a small model's window it is less."""

MOST_LINES = 60
"""Most lines of one answer that are read."""

QUOTE_CHARACTERS, SUBJECT_CHARACTERS = 300, 60
"""Longest quote that counts as a fact, and longest subject, beyond which it is cut."""

KEEP_TASK = """\
After the summary write this, one line for each thing that must not be lost word for word:
KEEP:
kind | subject | exact quote | #position
kind: instruction (how the assistant is to work from now on), decision, deadline, person, preference, value, \
identifier, error or open question.
subject: two to four words for what it is about, so exact that only a later statement of the same thing has it too \
("Ana's phone", not "Ana").
exact quote: copied letter by letter out of the message at that position, the shortest part that can be understood \
alone, no more than a sentence or two.
Name what a person states before what the assistant repeats, corrections and withdrawals under the subject of what \
they correct, each thing once and as it holds at the end. Leave out small talk."""

SUBJECTS_BEFORE = "Subjects named before; use the same words where the same thing is meant:"

_KEEP = re.compile(r"^[\s#*_>`-]{0,8}KEEP[*_`]{0,2}[:：][*_`]{0,2}[^\S\n]*$", re.MULTILINE)
_POSITION = re.compile(r"#?(\d{1,9})\]?\Z")
_BULLET = re.compile(r"\A(?:[-*•]|\d{1,2}[.)])\s+")
_NUMBER_BEFORE, _NUMBER_BEHIND = re.compile(r"\d[.,]\d\Z"), re.compile(r"\d[.,]\d")
_MARKS = "\"'`“”„«»‘’"
_SPACED = "\u0530"
"""Letters before this one are Latin, Greek and Cyrillic, whose words end at the last letter."""


@dataclass(frozen=True, slots=True)
class KeepLine:
    """A well-formed line below `KEEP:`, split into its parts; its quote is not compared with the message yet."""

    kind: FactKind
    subject: str
    quote: str
    position: int


def split_answer(text: str) -> tuple[str, str]:
    """Return the summary, and the lines below the last `KEEP:`; '' without such lines.

    An earlier `KEEP:` is a heading of the summary itself.
    """
    found = max(_KEEP.finditer(text), key=re.Match.start, default=None)
    return (text, "") if found is None else (text[: found.start()].rstrip(), text[found.end() :])


def read_keep_lines(lines: str) -> Iterator[KeepLine]:
    """Yield the well-formed lines among those below `KEEP:`, at most `MOST_LINES`."""
    for line in islice(filter(str.strip, lines.splitlines()), MOST_LINES):
        head, _, place = _BULLET.sub("", line.strip()).strip("|").rpartition("|")
        name, _, rest = head.partition("|")
        subject, bar, quote = rest.partition("|")
        position, kind = _POSITION.search(place.strip()), _kind(name.strip())
        if kind is not None and position is not None and bar:
            yield KeepLine(kind, one_line(subject)[:SUBJECT_CHARACTERS], one_line(quote), int(position[1]))


def taken_facts(lines: str, messages: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the facts that the lines name and that stand in `messages`, in position order.

    An instruction must be a whole sentence of a user's own words: a part of a prohibition could mean the opposite.
    Instructions in tool results, pasted text or quoted text do not count.
    """
    by_position = {message.position: _Read(message) for message in messages}
    taken = (
        _taken(line, by_position[line.position]) for line in read_keep_lines(lines) if line.position in by_position
    )
    return tuple(sorted(dict.fromkeys(fact for fact in taken if fact), key=lambda fact: fact.position))


def _kind(name: str) -> FactKind | None:
    plain = name.strip(_MARKS + "*_[]").casefold().replace("_", " ")
    return next((kind for kind in FactKind if plain in {kind, f"{kind}s"}), None)


@dataclass(slots=True)
class _Read:
    """A message whose texts are prepared once for all lines that name it."""

    message: Message
    known: dict[bool, str] = field(default_factory=dict)

    def said(self, *, own: bool) -> str:
        """Return its text and call arguments on one line, or with `own` the user's own sentences, one per line."""
        if own not in self.known:
            self.known[own] = "\n".join(own_sentences(self._text)) if own else self._whole()
        return self.known[own]

    @property
    def _text(self) -> str:
        return text_of(self.message.content)

    def _whole(self) -> str:
        return one_line("\n".join((self._text, *(call.arguments for call in self.message.tool_calls))))


def _taken(line: KeepLine, read: _Read) -> KeptFact | None:
    message = read.message
    is_order = line.kind is FactKind.INSTRUCTION
    if is_order and message.role is not Role.USER:
        return None
    said = read.said(own=is_order)
    spellings = dict.fromkeys((line.quote, line.quote.strip(_MARKS), line.quote.replace("\\|", "|")))
    quote = next((found for spelling in spellings if (found := _found(spelling, said, is_order=is_order))), "")
    if len(quote) > QUOTE_CHARACTERS:
        return None
    return (
        KeptFact(line.kind, quote, line.position, message.role, line.subject, message.author or "", chosen=1)
        if quote
        else None
    )


def _found(quote: str, said: str, *, is_order: bool) -> str:
    """Return the quote if it stands in `said`, for an instruction the whole sentence around it; '' if it does not."""
    if not any(map(str.isalnum, quote)):
        return ""
    start = said.find(quote)
    while start >= 0 and _cuts_word(said, start, start + len(quote)):
        start = said.find(quote, start + 1)
    if start < 0 or not is_order:
        return quote if start >= 0 else ""
    first, last = said.rfind("\n", 0, start) + 1, said.find("\n", start)
    sentence = said[first : last if last >= 0 else len(said)]
    at = start - first
    is_quoted = not without_quotations(sentence)[at : at + len(quote)].strip("x")
    return "" if is_quoted else sentence


def _cuts_word(said: str, start: int, stop: int) -> bool:
    """Return whether the match cuts a word or a number: `40` is not in `140`, nor in `40.5`."""
    around = (said[max(start - 1, 0) : start + 1], said[stop - 1 : stop + 1])
    is_cut = any(len(pair) > 1 and pair.isalnum() and max(pair) < _SPACED for pair in around)
    return (
        is_cut
        or bool(_NUMBER_BEFORE.search(said[max(start - 2, 0) : start + 1]))
        or bool(_NUMBER_BEHIND.match(said[stop - 1 : stop + 2]))
    )
