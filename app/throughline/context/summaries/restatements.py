"""Whether a sentence states again, with another value, what an earlier sentence of the same person stated.

A sentence is read as its words and its values: numbers, times, names and codes. Two sentences state the same thing if
they have the same words and the same values but one, which is of the same kind in both, and if the later one says that
something changed ("now", "instead"), or both have the form "the X is Y". Where two values differ, they are about two
things: "Anna comes on Monday", "Ben comes on Tuesday". In doubt nothing is replaced: two values of which one holds are
less harmful than a true one that is gone.
"""

import re
from functools import lru_cache

from throughline.context.summaries.change_words import adds, words_in_order
from throughline.context.summaries.fact_subjects import MOST_KNOWN
from throughline.context.summaries.readable_text import words_in
from throughline.context.summaries.sentence_values import (
    MANY,
    SENTENCE_WORD,
    Key,
    Sentence,
    Value,
    compared_words,
    read_sentence,
    words_and_values,
)

CORRECTION_REACH = 4
"""Messages within which a correction in few words may follow what it corrects."""

_OPENERS = words_in("""
    ah oh wait sorry oops hmm correction misread mistyped mistake typo meant
    moment entschuldigung korrektur falsch meinte perdón corrección pardon correction erreur 更正 抱歉
""")
"""Words of corrections in few words: "ah no, 15:30". "No" alone answers a question as well."""

_FILLING = words_in("no nein non make that read it i is should be was wrong line my bad das wäre es war")
"""Other words that such corrections have beside the value."""

_MAYBE_OPENERS = words_in("no nein non nope wrong measured counted typed falsch espera warte attends")
"""Words of other first clauses that may begin a correction."""

MOST_CORRECTING, MOST_OPENING = 12, 4
"""Most words of a sentence that may be a correction, and of its first clause."""

_WAS = words_in("was were wurde wurden")
_RUNNING = words_in("runs takes place starts begins ends opens closes happens due beginnt endet findet statt läuft")
"""Verbs that a change does not repeat: "the demo takes place on Monday", "the demo was moved to Friday"."""

_OWN_CLAUSE = words_in("the it we they there der die das es wir el la los las le les lo")
_REPORTING = words_in("""
    if unless wenn falls si says said say claims claimed thinks thought think told tells heard guess believe hopes hope
    sagt sagte meint dachte dice dijo cree dit pense but aber pero mais too auch también aussi
""")
"""Words behind a first clause that make it uncertain, another person's, or one of several."""

_ATTRIBUTES = words_in("""
    favourite favorite colour color size name status language farbe grösse status sprache favorito favorita tamaño
    idioma couleur taille langue
""")
"""Things that have one plain word as their value: "the colour is blue"."""

_CLAUSE_END = re.compile(r",\s")


@lru_cache(MOST_KNOWN)
def keys_of(sentence: str) -> frozenset[Key]:
    """Return the keys by which a sentence is found by later ones that may replace it; empty if it is not compared."""
    read = read_sentence(sentence)
    if not read.all_words:
        return frozenset()
    moved = (_moved_key(read.first, value.kind) for value in read.holding)
    return frozenset((*(key for key, _ in read.keyed()), *moved, *map(_end_key, read.held), _end_key((read.first,))))


def replaced_keys(sentence: str) -> frozenset[Key]:
    """Return the keys of the statements that a sentence may replace: those of its values, and of what it ends."""
    read, clause = read_sentence(sentence), read_sentence(_first_clause(sentence))
    left = read.left
    if not left and (read.is_ending or read.is_cancelling):
        left = {(read.first,)}
    moved = (_moved_key(read.first, value.kind) for value in read.moved_to)
    return frozenset((*(key for one in (read, clause) for key, _ in one.replacing()), *moved, *map(_end_key, left)))


def _moved_key(word: str, kind: str) -> Key:
    """Return the key that a statement with this word and a value of this kind shares with what changes the value."""
    return frozenset({word}), frozenset(), f"moved {kind}", False


@lru_cache(MOST_KNOWN)
def _first_clause(sentence: str) -> str:
    """Return the part of a sentence before its first comma if a statement of its own follows, else the whole sentence.

    Behind a condition, a report or what limits it, the first part says another thing: "60 euros, for children".
    """
    first, *rest = _CLAUSE_END.split(sentence, maxsplit=1)
    words = words_in_order(rest[0]) if rest else []
    is_own = bool(words) and words[0] in _OWN_CLAUSE and _REPORTING.isdisjoint(words) and not adds(sentence)
    return first if is_own else sentence


def _end_key(words: tuple[str, ...]) -> Key:
    """Return the key of a value, or a first word, that another sentence may deny or end."""
    return frozenset(), frozenset((words,)), "end", False


def restates(before: str, after: str) -> bool:
    """Return whether the sentence `after` gives another value to what the earlier sentence `before` states."""
    one, other = read_sentence(before), read_sentence(after)
    if not one.all_words or not other.all_words:
        return False
    is_new = _has_new_value(one, other) or _has_new_value(one, read_sentence(_first_clause(after)))
    return is_new or _is_moved(one, other) or _is_ended(one, other)


def _has_new_value(one: Sentence, other: Sentence) -> bool:
    """Return whether the later sentence repeats the earlier one with a new value of the same kind."""
    pairs = ((old, new) for key, old in one.keyed() for same, new in other.replacing() if key == same)
    return any(_is_new(old, new, one, other) for old, new in pairs)


def _is_moved(one: Sentence, other: Sentence) -> bool:
    """Return whether the later sentence says that the only value of the earlier one's subject changed to another."""
    same = [old.words for old in one.holding for new in other.moved_to if old.kind == new.kind]
    is_other = len(same) == len(one.holding) == 1 and same[0] not in other.held
    return is_other and one.first == other.first and one.words - _RUNNING == other.words - _WAS - _RUNNING


def _is_new(old: Value, new: Value, one: Sentence, other: Sentence) -> bool:
    """Return whether one value takes the place of another: the sentence says so, or both are "the X is Y"."""
    if old.words == new.words or old.is_before_copula or new.is_before_copula:
        return False
    if other.is_correcting or (other.is_any and new.kind != "word"):
        return True
    is_form = old.is_after_copula and new.is_after_copula and old.place == new.place and one.first == other.first
    if not is_form or other.is_any:
        return is_form
    is_value = new.kind != "word" or not _ATTRIBUTES.isdisjoint(one.words)
    return is_value and (one.is_definite or other.is_definite) and MANY.isdisjoint(one.words)


@lru_cache(MOST_KNOWN)
def is_short_correction(sentence: str) -> bool:
    """Return whether a sentence only corrects what was said just before: "sorry, make that 30 euros"."""
    return _correction(sentence) is not None


def corrected_subject(before: str, after: str) -> str:
    """Return what `before` says in front of the value that the short correction `after` corrects; '' if none.

    Besides its one value, of the same kind, the correction has only words of `before`. It is also '' if `before` begins
    with the value.
    """
    words, value = _correction(after) or (frozenset(), None)
    one = read_sentence(before)
    same = [old.words for old in one.holding if value is not None and old.kind == value.kind]
    if value is None or len(same) != 1 or value.words == same[0] or not words <= one.words:
        return ""
    at = next((word.start() for word in SENTENCE_WORD.finditer(before) if word[0].casefold() == same[0][0]), 0)
    return before[:at].strip()


@lru_cache(MOST_KNOWN)
def begins_like_correction(sentence: str) -> bool:
    """Return whether a short sentence begins like a correction of what was said before: "no, wrong line, 30 MB"."""
    first, *rest = _CLAUSE_END.split(sentence, maxsplit=1)
    if not rest or sentence.endswith(("?", "？")) or len(words_in_order(sentence)) > MOST_CORRECTING:
        return False
    opening = set(words_in_order(first))
    openers = _OPENERS | _MAYBE_OPENERS
    return len(opening) <= MOST_OPENING and not opening.isdisjoint(openers) and opening <= openers | _FILLING


@lru_cache(MOST_KNOWN)
def _correction(sentence: str) -> tuple[frozenset[str], Value] | None:
    """Return the words and the value of the last clause of a short correction; None for another sentence.

    All its other clauses consist of words of corrections, and one of these is one of _OPENERS.
    """
    *clauses, last = (SENTENCE_WORD.findall(clause) for clause in _CLAUSE_END.split(sentence))
    opening = {word.casefold() for clause in clauses for word in clause}
    if opening.isdisjoint(_OPENERS) or not opening <= _OPENERS | _FILLING or sentence.endswith(("?", "？")):
        return None
    words, values = words_and_values([word for word in compared_words(last) if word.plain not in _OPENERS | _FILLING])
    return (words, values[0]) if len(values) == 1 and not values[0].is_left else None


def _is_ended(one: Sentence, other: Sentence) -> bool:
    """Return whether the later sentence denies the value of the earlier one, ends it and goes on, or cancels all."""
    denied = one.held
    if denied and one.words == other.words and denied <= other.left:
        return True
    if other.is_cancelling and other.words and not other.values:
        return other.words <= one.words and one.first == other.first
    return other.is_ending and one.all_words <= other.all_words and other.before_end <= one.all_words


def could_replace(before: str, after: str) -> bool:
    """Return whether `after` may be a later statement of what `before` states, by the kinds of their values.

    It ends something, or both have a value of one kind which the other has not, and one of them no further ones.
    """
    one, other = read_sentence(before), read_sentence(after)
    left = other.left
    takes_back = not left.isdisjoint(value.words for value in one.values)
    if (other.is_ending or other.is_moving) and (takes_back or not left) and other.before_end <= one.all_words:
        return True
    if not _values_beside(other, one):
        return not _values_beside(one, other) or takes_back
    return has_other_value(before, after)


def has_other_value(before: str, after: str) -> bool:
    """Return whether each has a value that the other lacks, of the same kind, and one of them lacks only that."""
    one, other = read_sentence(before), read_sentence(after)
    old, new = _values_beside(one, other), _values_beside(other, one)
    kinds = {(value.kind, value.place if value.kind == "name" else "") for value in old}
    same = (value for value in new if {(value.kind, value.place), (value.kind, "")} & kinds)
    return min(len(old), len(new)) == 1 and any(same)


def _values_beside(one: Sentence, other: Sentence) -> list[Value]:
    """Return the values of the first that the other has not."""
    known = other.held
    return [value for value in one.holding if value.words not in known]
