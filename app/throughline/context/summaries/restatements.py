"""Whether a sentence states again, with another value, what an earlier sentence of the same person stated.

Two sentences are compared word by word, without articles, prepositions and words of change. They state the same thing
if they differ in one place only, and either the later one says that something changed ("now", "instead") or both have
the form "the X is Y". Sentences that differ in two places are about two things: "Anna comes on Monday", "Ben comes on
Tuesday". So are those that differ at their beginning.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from throughline.context.summaries.fact_subjects import MOST_KNOWN
from throughline.context.summaries.keep_lines import CHANGE_PARTS, CHANGE_WORDS, MOVED_ON, NEGATIONS
from throughline.context.summaries.readable_text import words_in

MOST_WORDS = 40
"""Most words of a sentence that is compared; a longer one states several things."""

MOST_VALUE_WORDS = 8
"""Most words in the place in which two sentences differ."""

_FUNCTION = words_in("""
    a an the i we you he she it they my our your his her its their this that these those of to for in on at by with from
    and or as than then so just also there here will would shall should can could has have had do does did am be been
    was were since after before again today please sorry wait ok okay well yes
    ein eine einen einem einer der die das den dem des ich wir du er sie es mein meine meinen unser unsere unseren dein
    von zu für in im am an auf bei mit aus und oder als wird werden hat haben war waren seit heute bitte
    un una unos unas el la los las yo nosotros mi mis nuestro nuestra tu su de a para en con y o como ha han desde hoy
    un une le la les je nous mon ma mes notre nos ton votre son du des de à pour en au aux avec et ou a ont depuis
""")
_COPULAS = words_in("is are was were be ist sind lautet es son est sont 是")
_NEGATED = NEGATIONS | words_in("not don don't t nicht")
_WEAK = words_in("""
    now new off wait up down plan plans jetzt nun neue neuer ahora ya nueva nuevo maintenant nouvelle nouveau ora agora
    теперь
""")
"""Words of change that also begin something else: "we need eggs now"."""

_CHANGING = (CHANGE_WORDS - _NEGATED) | words_in("""
    change 改 到 现 在 了 的 anymore since update updated correction corrected switched switch raised raise lowered
    lower extended shortened increased increase decreased reduced cut went up down grew fell longer plan plans
    erhöht gesenkt verlängert gewechselt aktualisiert
    subido bajado actualizado actualización changé passé mis
""")
_OWNED = words_in("""
    the my our your his her their its der die das mein meine unser unsere dein deine el la mi nuestro nuestra tu
    le la mon ma notre votre
""")
_SURE = _CHANGING - _WEAK
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+(?:[-_'’.,:/@][^\W_]+)*")
_ENDED = re.compile(
    r"\b(?:no longer|not .{0,40} any ?more|instead of|rather than|nicht mehr|statt|ya no|en vez de|au lieu de"
    r"|ne .{0,20} plus)\b",
    re.IGNORECASE,
)
"""Stands before a value that no longer holds: "we no longer use Redis, we use RabbitMQ"."""

_NUMBERS = words_in(
    "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand"
)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The compared words of a sentence in lower case, as they are written, and whether its form is "the X is Y".

    `after_copula` is the index of the first compared word after the copula, -1 without one.
    """

    words: tuple[str, ...]
    written: tuple[str, ...]
    is_definite: bool
    after_copula: int


def restates(before: str, after: str) -> bool:
    """Return whether the sentence `after` gives another value to what the earlier sentence `before` states."""
    change = _read_change(after)
    if not (change.is_any or change.sentence.after_copula >= 0):
        return False
    one, other = _read(before), change.sentence
    if not one.words or not other.words or max(len(one.words), len(other.words)) > MOST_WORDS:
        return False
    if change.is_any and (_is_replaced(one, other) or (change.is_ending and _is_ended(one, other))):
        return True
    is_comparable = change.is_sure or min(one.after_copula, other.after_copula) >= 0
    return is_comparable and one.words[0] == other.words[0] and _differ_in_value(one, change)


def _differ_in_value(one: _Sentence, change: "_Change") -> bool:
    """Return whether two sentences differ in one place, and there in a value."""
    other = change.sentence
    blocks = [block for block in _blocks(one.words, other.words) if block[0] != "equal"]
    if len(blocks) != 1 or blocks[0][0] != "replace":
        return False
    _, first, last, start, stop = blocks[0]
    is_form = 0 <= one.after_copula <= first and 0 <= other.after_copula <= start
    old, new = one.written[first:last], other.written[start:stop]
    if not (_are_values(old, new) or (is_form and len(old) == len(new) == 1)):
        return False
    return change.is_sure or (is_form and (change.is_any or one.is_definite or other.is_definite))


def differ_in_subject(one: str, other: str) -> bool:
    """Return whether two sentences are about different things: each has a word of its own that is no value."""
    first, second = _read(one), _read(other)
    return bool(_own_words(first, second)) and bool(_own_words(second, first))


def _is_replaced(one: _Sentence, other: _Sentence) -> bool:
    """Return whether the later sentence has all words of the earlier one but its values, and values of its own.

    Both have a number, or both a name; else the later one says something else about the same thing.
    """
    if _own_words(one, other) or _own_words(other, one):
        return False
    kept = [word for word, written in zip(one.words, one.written, strict=True) if not _is_value(written)]
    old, new = _values(one) - _values(other), _values(other) - _values(one)
    if not kept or not old or not new:
        return False
    return any(map(_has_digit, old)) == any(map(_has_digit, new))


def _is_ended(one: _Sentence, other: _Sentence) -> bool:
    """Return whether the later sentence has all words of the earlier one, whose value it ends, and further ones."""
    return set(one.words) <= set(other.words) and len(other.words) > len(one.words)


def _are_values(old: Sequence[str], new: Sequence[str]) -> bool:
    """Return whether two places hold values of one kind, numbers or names, with few words around them."""
    if max(len(old), len(new)) > MOST_VALUE_WORDS:
        return False
    both = [any(map(_has_digit, words)) for words in (old, new)]
    return both[0] == both[1] and all(sum(map(_is_value, words)) * 2 >= len(words) for words in (old, new))


def _own_words(one: _Sentence, other: _Sentence) -> set[str]:
    """Return the words of the first that the second has not, without values."""
    pairs = zip(one.words, one.written, strict=True)
    return {word for at, (word, written) in enumerate(pairs) if word not in other.words and not _is_later(at, written)}


def _is_later(at: int, written: str) -> bool:
    """Return whether a word may be a value: the first word of a sentence is none, however it is written."""
    return at > 0 and _is_value(written)


def _values(sentence: _Sentence) -> set[str]:
    pairs = enumerate(zip(sentence.words, sentence.written, strict=True))
    return {word for at, (word, written) in pairs if _is_later(at, written)}


def _blocks(one: Sequence[str], other: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, one, other, autojunk=False).get_opcodes()


def _is_value(word: str) -> bool:
    """Return whether a word is a number, a name or a code."""
    return word[0].isupper() or _has_digit(word) or "_" in word


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word)) or word in _NUMBERS


@dataclass(frozen=True, slots=True)
class _Change:
    """A sentence, and whether it says that something changed: perhaps, surely, and that a value ended."""

    sentence: _Sentence
    is_any: bool
    is_sure: bool
    is_ending: bool


@lru_cache(MOST_KNOWN)
def _read_change(sentence: str) -> _Change:
    sentence = MOVED_ON.sub(" ", sentence)
    words = set(_WORD.findall(sentence.casefold()))
    is_any = not _CHANGING.isdisjoint(words) or any(part in sentence for part in CHANGE_PARTS)
    return _Change(_read(sentence), is_any, not _SURE.isdisjoint(words), _ENDED.search(sentence) is not None)


@lru_cache(MOST_KNOWN)
def _read(sentence: str) -> _Sentence:
    written: list[str] = []
    words: list[str] = []
    after_copula = -1
    all_words = _WORD.findall(sentence)
    owned = bool(all_words) and all_words[0].casefold() in _OWNED
    for word in all_words:
        plain = word.casefold()
        if plain in _COPULAS:
            after_copula = len(words) if after_copula < 0 else after_copula
        elif plain not in _FUNCTION and plain not in _CHANGING:
            written.append(word)
            words.append(plain)
    return _Sentence(tuple(words), tuple(written), owned, after_copula)
