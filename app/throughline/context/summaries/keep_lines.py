"""Facts that a summary model names in lines below `KEEP:`, and later statements about them, found by their words.

The latter keep a withdrawn value from being shown as current if the model overlooks its correction.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise, takewhile

from throughline.context.summaries.change_words import (
    NEGATIONS,
    changes,
    has_ending_word,
    without_denied_changes,
    words_in_order,
)
from throughline.context.summaries.fact_subjects import subject_key, words_of
from throughline.context.summaries.readable_text import (
    QUOTE_CHARACTERS,
    SCANNED_CHARACTERS,
    one_line,
    own_sentences,
    without_quotations,
)
from throughline.context.summaries.restatements import could_replace
from throughline.domain.message import Message, Role, text_of
from throughline.domain.summary import FactKind, KeptFact

# The lines in which a summary model names facts to keep verbatim, and the facts that are taken from them.
#
# After its summary the answer continues with `KEEP:` and lines of the form `kind | subject | exact quote | #position`.
# A line counts only if its quote stands in that message. Malformed lines are ignored and never invalidate the summary.

KEEP_TOKENS = 1000
"""Most tokens of the lines below `KEEP:` in an answer, about 30 lines; for a small model's window it is less."""

MOST_LINES = 60
"""Most lines of one answer that are read."""

SUBJECT_CHARACTERS = 60
"""Longest subject, beyond which it is cut."""

KEEP_TASK = """\
After the summary write this, one line for each thing that must not be lost word for word:
KEEP:
kind | subject | exact quote | #position
kind: instruction (how the assistant is to work from now on), limit, goal, decision, deadline, person, preference, \
value, identifier, error or open question.
subject: two to four words for what it is about, so exact that only a later statement of the same thing has it too \
("Ana's phone", not "Ana").
exact quote: copied letter by letter out of the message at that position, the shortest part that can be understood \
alone, no more than a sentence or two.
Name what a person states before what the assistant repeats, corrections and withdrawals under the subject of what \
they correct, each thing once and as it holds at the end. Leave out small talk. These lines stand beside the summary: \
do not tell them again in it."""

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


MOST_STATEMENTS = 20
"""Most facts that one message changes."""

COVERED_SHARE = 2 / 3
"""Share of the words of a subject, or of an earlier sentence, that a sentence must contain to concern it."""

SAME_START, LEAST_START = 0.5, 3
"""A sentence restates a fact if it begins with the same words: half of the fact's words, and at least three."""

_LEFT_NUMBER = re.compile(
    r"\b(?:from|not|no longer|instead of|rather than|nicht|statt|von|desde|pas) (?:(?:at|on|in|um|am|a) )?(\d+)\b",
    re.IGNORECASE,
)
"""A number that a sentence takes back: "moved from 3 to 5"."""

_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")


def are_siblings(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether two subjects each have a word of their own and thus differ, like two people's phones."""
    return bool(one and other and one - other and other - one)


def later_statements(facts: Sequence[KeptFact], messages: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the sentences of `messages` that change one of `facts`, each under the subject of that fact."""
    known = _Known(facts)
    own = [message for message in messages if message.role is Role.USER]
    return tuple(statement for message in own for statement in islice(_of(message, known), MOST_STATEMENTS))


def _of(message: Message, known: "_Known") -> Iterator[KeptFact]:
    for sentence in own_sentences(text_of(message.content)[:SCANNED_CHARACTERS]):
        if len(sentence) > QUOTE_CHARACTERS or sentence.endswith(("?", "？")):
            continue
        for fact in known.spoken_of(sentence, message.position):
            author = message.author or ""
            yield replace(fact, text=sentence, position=message.position, said_by=Role.USER, author=author)


def is_other_number(before: str, sentence: str) -> bool:
    """Return whether a sentence has most of the words of the sentence `before`, and another number."""
    words = words_of(before)
    return _has_other_number(before, sentence) and len(words & words_of(sentence)) >= COVERED_SHARE * len(words)


def chance_numbers(before: str, sentence: str) -> frozenset[str]:
    """Return the numbers that both sentences have by chance: "in room 3" and "the next 3 tickets".

    The same word before a number in both is no chance, nor is a number that `sentence` takes back.
    """
    old, new = _numbers_after(before), _numbers_after(sentence)
    meant = {number for _, number in old & new} | set(_LEFT_NUMBER.findall(sentence))
    return frozenset({number for _, number in old} & {number for _, number in new} - meant)


def has_chance_numbers_only(before: str, sentence: str) -> bool:
    """Return whether the values of a sentence are nothing but numbers that it shares with `before` by chance."""
    values = _values(sentence)
    return bool(values) and values <= chance_numbers(before, sentence)


@dataclass(slots=True)
class _Known:
    """Index of the current facts: by the words of their subject, and by the position where a model named them."""

    by_word: dict[str, list[KeptFact]]
    named_at: dict[int, list[KeptFact]]

    def __init__(self, facts: Sequence[KeptFact]) -> None:
        self.by_word, self.named_at = defaultdict(list), defaultdict(list)
        for fact in facts:
            if fact.kind is not FactKind.INSTRUCTION and not fact.replaced_by:
                if fact.subject and fact.chosen:
                    self.named_at[fact.position].append(fact)
                for word in subject_key(fact.subject):
                    self.by_word[word].append(fact)

    def spoken_of(self, sentence: str, position: int) -> Iterator[KeptFact]:
        """Yield the earlier facts that the sentence changes, each once."""
        found = {fact for word in words_of(sentence) for fact in self.by_word.get(word, ())}
        for fact in sorted(found, key=lambda fact: (fact.position, fact.text)):
            is_news = fact.position < position and fact.text != sentence
            is_later = could_replace(fact.text, sentence) or _is_ended(subject_key(fact.subject), sentence)
            if (
                is_news
                and is_later
                and _is_changed(fact, sentence)
                and not self._is_of_sibling(fact, sentence, position)
            ):
                yield fact

    def _is_of_sibling(self, fact: KeptFact, sentence: str, position: int) -> bool:
        """Return whether a model named the sentence only under subjects other than the fact's."""
        here = [one for one in self.named_at.get(position, ()) if one.text in sentence or sentence in one.text]
        return bool(here) and all(are_siblings(subject_key(one.subject), subject_key(fact.subject)) for one in here)


def _is_changed(fact: KeptFact, sentence: str) -> bool:
    """Return whether a sentence names the subject of a fact and says something different about it."""
    key, words = subject_key(fact.subject), words_of(sentence)
    if len(key & words) < (COVERED_SHARE if changes(sentence) else 1) * len(key):
        return False
    if _begins_alike(fact.text, sentence, key) or is_other_number(fact.text, sentence):
        return True
    is_named = " " in fact.subject and fact.subject.casefold() in sentence.casefold()
    values = _values(sentence) - chance_numbers(fact.text, sentence)
    is_certain = len(key) > 1 or is_named or bool(_values(fact.text) & values) or _is_ended(key, sentence)
    has_news = any(key.isdisjoint(words_of(value)) for value in values)
    is_statement = has_news or _is_ended(key, sentence) or (bool(_UNSPACED.search(sentence)) and "请" not in sentence)
    return is_certain and is_statement and changes(sentence)


def _is_ended(key: frozenset[str], sentence: str) -> bool:
    """Return whether a sentence ends a subject: by "cancelled", or by a negation before the subject.

    An example of the last is "no reminder".
    """
    words = pairwise(words_in_order(without_denied_changes(sentence)))
    is_negated = any(before in NEGATIONS and not key.isdisjoint(words_of(word)) for before, word in words)
    return is_negated or has_ending_word(sentence)


def _begins_alike(before: str, sentence: str, key: frozenset[str]) -> bool:
    """Return whether both begin with the same words, including the subject, and continue with different values."""
    old, new = _WORD.findall(before), _WORD.findall(sentence)
    start = sum(
        1 for _ in takewhile(lambda pair: pair[0].casefold() == pair[1].casefold(), zip(old, new, strict=False))
    )
    if start < max(LEAST_START, SAME_START * len(old)) or not key <= words_of(" ".join(old[:start])):
        return False
    rests = old[start:], new[start:]
    return all(rest and _is_value(rest[0]) for rest in rests) and set(rests[0]).isdisjoint(rests[1])


def _numbers_after(text: str) -> frozenset[tuple[str, str]]:
    """Return the numbers of `text`, each with the word before it."""
    words = words_in_order(text)
    return frozenset((before, word) for before, word in zip(("", *words), words, strict=False) if word.isdecimal())


def _has_other_number(before: str, sentence: str) -> bool:
    """Return whether both contain numbers, and the sentence has one that is not in `before`."""
    old, new = set(_NUMBER.findall(before)), set(_NUMBER.findall(sentence))
    return bool(old and new) and not new <= old


def _values(text: str) -> frozenset[str]:
    """Return the words of `text` that make up a value: words with a digit, and names, except at the beginning."""
    words = [word.strip(".,;:!?()") for word in text.split()]
    return frozenset(word for at, word in enumerate(words) if _is_value(word if at else word.casefold()))


def _is_value(word: str) -> bool:
    return (len(word) > 1 and word[0].isupper()) or any(map(str.isdigit, word))
