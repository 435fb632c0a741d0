"""What a summary cites of a single message is kept in that message's own words, too.

A model that writes "Ana must not have penicillin [#12]" says that #12 matters, though it may not name it below `KEEP:`.
"""

import re
from collections.abc import Iterator, Sequence

from throughline.context.summaries.keep_lines import QUOTE_CHARACTERS, KeepLine, one_line, read_keep_lines
from throughline.context.summaries.later_statements import SCANNED_CHARACTERS
from throughline.context.summaries.pasted import without_pasted_blocks
from throughline.context.summaries.sentences import sentences_of
from throughline.context.summaries.subjects import words_of
from throughline.domain.kept_facts import FactKind, KeptFact
from throughline.domain.message import Message, Role, text_of

MOST_CITED = 60
"""So many facts are taken from one summary."""

LEAST_SHARED = 0.5
"""The line must have this share of a sentence's words, or the sentence of the line's."""

_SINGLE = re.compile(r"\[#(\d{1,9})\]")
_HEADING = re.compile(r"#{1,4}\s+(\w+)")
_KINDS = {"decisions": FactKind.DECISION, "open": FactKind.OPEN_QUESTION, "intent": FactKind.PREFERENCE}
"""The sections a summariser is asked for; what stands in others, or in other languages, is a value."""


def cited_facts(text: str, lines: str, messages: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return, for each line of a summary that cites one user's message, the sentence of it that the line is about.

    `lines` are those below `KEEP:`; one that names the message with a quote that is not in it tells kind and subject.
    """
    named = {line.position: line for line in read_keep_lines(lines)}
    said = {message.position: message for message in messages if message.role is Role.USER}
    kind = FactKind.VALUE
    found: list[KeptFact] = []
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            kind = _KINDS.get(heading[1].casefold(), FactKind.VALUE)
        places = {int(number) for number in _SINGLE.findall(line)}
        if len(places) == 1 and (message := said.get(places.pop())) is not None:
            found.extend(_of(line, message, kind, named.get(message.position)))
        if len(found) >= MOST_CITED:
            break
    return tuple(dict.fromkeys(found))


def _of(line: str, message: Message, kind: FactKind, named: KeepLine | None) -> Iterator[KeptFact]:
    told = words_of(_SINGLE.sub("", line))
    text = without_pasted_blocks(text_of(message.content)[:SCANNED_CHARACTERS])
    sentences = [one_line(text[start:stop]) for start, stop in sentences_of(text)]
    shared = {
        sentence: _shared(told, words_of(sentence)) for sentence in sentences if len(sentence) <= QUOTE_CHARACTERS
    }
    best = max(shared, key=lambda sentence: shared[sentence], default="")
    if best and shared[best] >= LEAST_SHARED:
        is_about = named is not None and _shared(words_of(named.quote), words_of(best)) >= LEAST_SHARED
        kind, subject = (named.kind, named.subject) if named is not None and is_about else (kind, "")
        yield KeptFact(kind, best, message.position, Role.USER, subject, message.author or "", chosen=1)


def _shared(told: frozenset[str], words: frozenset[str]) -> float:
    return len(told & words) / max(min(len(told), len(words)), 1)
