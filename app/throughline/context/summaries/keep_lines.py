"""The lines in which a summary model names what must not be lost word for word, and what is taken of them.

The answer that holds a summary goes on with `KEEP:` and lines `kind | subject | exact quote | #position`. A line counts
only if its quote stands in that message. What is not in the form is ignored and never costs the summary.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from throughline.context.summaries.pasted import without_pasted_blocks
from throughline.domain.kept_facts import FactKind, KeptFact
from throughline.domain.message import Message, Role, text_of

KEEP_TOKENS = 1000
"""Room for these lines beside a summary, about 30 of them; a small model's window gives less."""

MOST_LINES = 60
"""So many lines of one answer are read."""

QUOTE_CHARACTERS, SUBJECT_CHARACTERS = 300, 60
"""A longer quote is a text and no fact; a longer subject is cut."""

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
_MARKS = "\"'`“”„«»‘’"
_FIELDS = 4


@dataclass(frozen=True, slots=True)
class KeepLine:
    """One line as the model wrote it."""

    kind: FactKind
    subject: str
    quote: str
    position: int


def split_answer(text: str) -> tuple[str, str]:
    """Return the summary, and the lines below `KEEP:`; '' where there are none."""
    found = _KEEP.search(text)
    return (text, "") if found is None else (text[: found.start()].rstrip(), text[found.end() :])


def read_keep_lines(lines: str) -> Iterator[KeepLine]:
    """Yield the lines that are in the form, at most `MOST_LINES`."""
    for line in islice(filter(str.strip, lines.splitlines()), MOST_LINES):
        fields = [field.strip() for field in _BULLET.sub("", line.strip()).strip("|").split("|")]
        position = _POSITION.search(fields[-1])
        kind = _kind(fields[0])
        if kind is not None and position is not None and len(fields) >= _FIELDS:
            subject = " ".join(fields[1].split())[:SUBJECT_CHARACTERS]
            yield KeepLine(kind, subject, one_line("|".join(fields[2:-1])), int(position[1]))


def taken_facts(lines: str, messages: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the facts that the lines name and that stand in `messages`, in position order.

    Instructions are a user's own words only: what a tool returned or a user pasted orders nobody.
    """
    by_position = {message.position: message for message in messages}
    taken = (_taken(line, by_position) for line in read_keep_lines(lines))
    return tuple(sorted(dict.fromkeys(fact for fact in taken if fact), key=lambda fact: fact.position))


def one_line(text: str) -> str:
    """Return `text` with its white space single."""
    return " ".join(text.split())


def _kind(name: str) -> FactKind | None:
    plain = name.strip(_MARKS + "*_[]").casefold().replace("_", " ")
    return next((kind for kind in FactKind if plain in {kind, f"{kind}s"}), None)


def _taken(line: KeepLine, messages: Mapping[int, Message]) -> KeptFact | None:
    message = messages.get(line.position)
    if message is None or (line.kind is FactKind.INSTRUCTION and message.role is not Role.USER):
        return None
    text = text_of(message.content)
    if line.kind is FactKind.INSTRUCTION:
        text = without_pasted_blocks(text)
    said = one_line("\n".join((text, *(call.arguments for call in message.tool_calls))))
    quote = next((quote for quote in (line.quote, line.quote.strip(_MARKS)) if quote in said), "")
    if len(quote) > QUOTE_CHARACTERS or not any(map(str.isalnum, quote)):
        return None
    return KeptFact(line.kind, quote, line.position, message.role, line.subject, message.author or "", chosen=1)
