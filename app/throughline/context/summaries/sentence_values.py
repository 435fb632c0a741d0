"""The words and values of a sentence, by which statements are compared with earlier ones.

Values are numbers, times, names and codes. The languages are English, German, Spanish and French, and Chinese in part.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from throughline.context.summaries.change_words import (
    CHANGE_PARTS,
    CHANGE_WORDS,
    ENDING_WORDS,
    MOVED_ON,
    NEGATIONS,
    has_ending_word,
    without_denied_changes,
    words_in_order,
)
from throughline.context.summaries.fact_subjects import MOST_KNOWN
from throughline.context.summaries.readable_text import words_in
from throughline.context.summaries.statements import NUMBER_WORDS

MOST_WORDS = 40
"""Most words of a sentence that is compared; a longer one states several things."""

MOST_VALUES, MOST_VALUE_WORDS = 6, 8
"""Most values of a sentence that is compared, and most words of each."""

_FUNCTION = words_in("""
    a an the i we you he she it they my our your his her its their this that these those of s
    called named and or as than then so just also there here will would shall should can could has have had do does did
    am be been again today please sorry wait ok okay well yes
    ein eine einen einem einer der die das den dem des ich wir du er sie es mein meine meinen unser unsere unseren dein
    heisst und oder als wird werden hat haben heute bitte
    un una unos unas el la los las yo nosotros mi mis nuestro nuestra tu su de y o como ha han hemos hoy
    une le les je nous mon ma mes notre nos ton votre son du des et ou a ont
""")

_PLACING = words_in("""
    to for in on at by with from under over through von zu für im am um an auf bei mit aus
    en para con por à pour au aux avec dans sur
""")
"""Prepositions: two values with one between them are two values, and "on Monday" is no other value of "in Berlin"."""

_JOINING = words_in("of the der le du de")
"""Words inside a value: "the 3rd of May"."""

_AT = words_in("at on um am à a")
"""Prepositions inside a time: "Monday at 10"."""

_ASIDE = words_in("since after before until seit nach vor bis desde después antes hasta depuis après avant jusqu'à")
"""Words before a time that does not belong to the statement: "since Monday"."""

_COPULAS = words_in("is are be ist sind lautet es son est sont 是")
_STATING = words_in("takes costs weighs expires kostet cuesta coûte")
"""Verbs that, like a copula, are followed by the one value of "the X": "the visit takes place on 3 May"."""

_NEGATED = NEGATIONS | words_in("not don don't t nicht ne")
_CHANGING = (CHANGE_WORDS - _NEGATED) | words_in("""
    change moves 改 到 现 在 了 的 涨 降 anymore update updated correction corrected switched switch raise raise lowered
    lower extended shortened increased increase decreased reduced cut went up down grew fell longer plan plans
    raised pushed renamed replaced rescheduled left
    erhöht gesenkt verlängert gewechselt aktualisiert
    subido bajado actualizado actualización changé passé mis
""")

_CORRECTING = words_in("actually instead correction rather stattdessen korrektur doch mejor sino plutôt finalement")
"""Words behind which also a plain word replaces another: "actually, I prefer coffee"."""

_MODAL = words_in("if could should might may would will wenn könnte sollte würde wird si podría")
"""Words of sentences that tell no change that took place."""

_OWNED = words_in("""
    the my our your his her their its der die das mein meine unser unsere dein deine el la mi nuestro nuestra tu
    le la mon ma notre votre
""")

MANY = words_in("""
    friend friends sister brother cousin colleague neighbour neighbor son daughter child uncle aunt dog cat allergy
    ticket tickets hobby client customer competitor option example freund freundin schwester bruder sohn tochter hund
    katze allergie kunde amigo amiga hermano hermana hijo hija perro gato alergia cliente ami amie frère sœur fils fille
    chien chat allergie
""")
"""Things of which one has several: "my friend is Ben" does not replace "my friend is Anna"."""

_TOWARDS = words_in("to auf zu nach a à")
"""Prepositions before what something changed to."""

_CONDITIONS = words_in("if unless whether wenn falls ob si sauf")
"""First words of sentences that state nothing."""

_TIMES = words_in("""
    monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays
    sundays january february march april may june july august september october november december
    montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar märz mai juni juli oktober dezember
    lunes martes miércoles jueves viernes sábado domingo enero febrero marzo abril mayo junio julio agosto septiembre
    octubre noviembre diciembre lundi mardi mercredi jeudi vendredi samedi dimanche janvier février mars avril juin
    juillet août septembre octobre novembre décembre
""")
"""Names of days and months, also where they are written in lower case."""

SENTENCE_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+(?:[-_'’.,:/@][^\W_]+)*")
_TIME = re.compile(r"\d{1,2}:\d\d|\d{1,2}(?:am|pm)|\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
_ENDED = re.compile(
    r"\b(?:no longer|not .{0,40} any ?more|instead of|rather than|nicht mehr|statt|ya no|en vez de|au lieu de"
    r"|ne .{0,20} plus)\b",
    re.IGNORECASE,
)
"""Stands before a value that no longer holds: "we no longer use Redis, we use RabbitMQ"."""

_LEFT = words_in("left from instead rather longer statt von desde nicht not no kein keine keinen pas plus sin ya")
"""Words before a value that is left or denied: "from Friday to Monday", "not 900 euros"."""

_OF = words_in("von desde")
"""Words of _LEFT that take back a value only in a sentence with a word of _TOWARDS.

Alone they mean "of" or "since": "die IBAN von Ute".
"""

_REACH = 3
"""Words that may stand between such a word and the value: "not on the Friday"."""

_POSTPONED = ENDING_WORDS | words_in(
    "postponed moved changed verschoben verlegt geändert aplazado cambió reporté changé"
)
Key: TypeAlias = tuple[frozenset[str], frozenset[tuple[str, ...]], str, bool]
"""What two sentences have in common that differ in one value: the words, the other values, and that value's kind.

The last part is whether the earlier sentence tells a change itself: "ticket 101 is now closed".
"""


@dataclass(frozen=True, slots=True)
class Value:
    """Adjacent words that make a value, in lower case; `place` is the preposition before it, '' without one.

    `kind` is "time", "word", or which of numbers, names and codes it has. `is_left`: the sentence denies or leaves it.
    Before a copula it says what the sentence is about: "ticket 101 is closed".
    """

    words: tuple[str, ...]
    kind: str
    place: str
    is_left: bool
    is_after_copula: bool
    is_before_copula: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence that are no values, its values, and its form.

    `before_end` are the words before what denies or ends something. `is_definite`: it begins like "the X". It says
    that something changed (`is_any`; `is_certain`: without a negation or a word like "could"), that the speaker
    corrects themselves (`is_correcting`), that a value ended (`is_ending`), all of it (`is_cancelling`), or that it
    ended or took another place (`is_moving`).
    """

    first: str
    before_end: frozenset[str]
    words: frozenset[str]
    values: tuple[Value, ...]
    is_definite: bool
    is_any: bool
    is_certain: bool
    is_correcting: bool
    is_ending: bool
    is_cancelling: bool
    is_moving: bool

    @property
    def all_words(self) -> frozenset[str]:
        return self.words.union(*(value.words for value in self.values))

    @property
    def holding(self) -> tuple[Value, ...]:
        """The values that the sentence neither denies nor leaves."""
        return tuple(value for value in self.values if not value.is_left)

    @property
    def held(self) -> set[tuple[str, ...]]:
        """The words of each of these values."""
        return {value.words for value in self.holding}

    @property
    def moved_to(self) -> tuple[Value, ...]:
        """The only value, if the sentence says that "the X" changed to it: "the demo was pushed to Monday"."""
        is_change = self.is_any and self.is_certain and self.is_definite and not self.is_cancelling
        if not is_change or len(self.holding) != 1:
            return ()
        return tuple(value for value in self.holding if value.place in _TOWARDS)

    @property
    def left(self) -> set[tuple[str, ...]]:
        """The words of each value that the sentence denies or leaves."""
        return {value.words for value in self.values if value.is_left}

    def keyed(self) -> Iterator[tuple[Key, Value]]:
        """Yield each value that holds, with what the sentence says besides."""
        holding = self.holding
        for at, value in enumerate(holding):
            others = frozenset(other.words for other in (*holding[:at], *holding[at + 1 :]))
            yield (self.words, others, value.kind, self.is_any and not value.is_after_copula), value

    def replacing(self) -> Iterator[tuple[Key, Value]]:
        """Yield the keys of earlier statements that the sentence gives another value, with that value.

        A change that is told as the earlier one was is another change, unless it says what it led to.
        """
        for (words, others, kind, _), value in self.keyed():
            is_stated = value.is_after_copula and self.words.isdisjoint(MANY)
            if self.is_any or self.is_correcting or is_stated:
                yield (words, others, kind, False), value
                if value.place in _TOWARDS and not self.is_cancelling:
                    yield (words, others, kind, True), value


@dataclass(frozen=True, slots=True)
class ComparedWord:
    """A word that is compared: as it is written, the preposition before it, and whether its value is left.

    `is_joined`: at most a preposition and words of _JOINING stand between it and the word before it. `is_first`: it
    begins the sentence, behind an article, and may have a capital letter for that.
    """

    written: str
    place: str
    is_left: bool
    is_aside: bool
    is_after_copula: bool
    is_joined: bool
    is_first: bool

    @property
    def plain(self) -> str:
        return self.written.casefold()


@lru_cache(MOST_KNOWN)
def read_sentence(sentence: str) -> Sentence:
    """Return the words, values and form of a sentence; without words and values if it is long, or a condition."""
    without_denied = without_denied_changes(sentence)
    sentence = MOVED_ON.sub(" ", without_denied)
    every = SENTENCE_WORD.findall(sentence)
    plain = {word.casefold() for word in every}
    read = list(compared_words(every))
    words, values = words_and_values(read)
    longest = max((len(value.words) for value in values), default=0)
    is_large = len(read) > MOST_WORDS or len(values) > MOST_VALUES or longest > MOST_VALUE_WORDS
    if not words or is_large or every[0].casefold() in _CONDITIONS:
        words, values = frozenset(), ()
    return Sentence(
        first=read[0].plain if read else "",
        before_end=_before_end(every, read),
        words=words,
        values=values,
        is_definite=bool(every) and every[0].casefold() in _OWNED,
        is_any=not _CHANGING.isdisjoint(plain) or any(part in sentence for part in CHANGE_PARTS),
        is_certain=(_NEGATED | _MODAL).isdisjoint(plain) and not any(map(_is_contracted_not, plain)),
        is_correcting=not _CORRECTING.isdisjoint(plain),
        is_ending=_ENDED.search(sentence) is not None,
        is_cancelling=has_ending_word(sentence),
        is_moving=not _POSTPONED.isdisjoint(words_in_order(without_denied)),
    )


def _before_end(every: Sequence[str], read: Sequence[ComparedWord]) -> frozenset[str]:
    """Return the compared words before the first word that denies or leaves something; empty without one."""
    plain = [word.casefold() for word in every]
    end = next((at for at, word in enumerate(plain) if word in _LEFT or _is_contracted_not(word)), 0)
    return frozenset(plain[:end]) & {word.plain for word in read}


def _is_contracted_not(word: str) -> bool:
    """Return whether a word in lower case ends in "n't", as "wasn't" does."""
    return word.endswith(("n't", "n’t"))


def compared_words(every: Sequence[str]) -> Iterator[ComparedWord]:
    """Yield the words that are compared: no articles, pronouns and words of change."""
    place, left, is_aside, is_after_copula, is_joined, is_first = "", 0, False, False, False, True
    is_definite = bool(every) and every[0].casefold() in _OWNED
    leaving = _LEFT if any(word in _TOWARDS for word in every) else _LEFT - _OF
    for word in every:
        plain = word.casefold()
        begins, is_first = is_first, is_first and (plain in _OWNED or plain in _CHANGING)
        left = max(left - 1, 0)
        if plain in leaving or _is_contracted_not(plain):
            left = _REACH
        if plain in _COPULAS:
            is_after_copula = True
        elif plain in _ASIDE:
            is_aside = True
        elif plain in _PLACING:
            place, left = plain, 0 if plain == "to" else left
        elif plain not in _FUNCTION and plain not in _CHANGING and plain not in _NEGATED and plain not in _LEFT:
            yield ComparedWord(word, place, bool(left), is_aside, is_after_copula, is_joined, is_first=begins)
            is_after_copula = is_after_copula or (is_definite and plain in _STATING)
            left = _REACH if left and _is_value(word) else left
            place, is_aside, is_joined = "", is_aside and _is_value(word), True
            continue
        is_joined = is_joined and (plain in _PLACING or plain in _JOINING)
        left = 0 if plain in _COPULAS else left


def words_and_values(read: Sequence[ComparedWord]) -> tuple[frozenset[str], tuple[Value, ...]]:
    """Return the words that are no values, and the values."""
    words: list[str] = []
    runs: list[list[ComparedWord]] = []
    for word in read:
        if not _is_value(word.written) or (word.is_first and not _has_digit(word.written) and word.plain not in _TIMES):
            words.append(word.plain)
            runs.append([])
        elif word.is_aside:
            continue
        elif runs and runs[-1] and _continues(runs[-1], word):
            runs[-1].append(word)
        else:
            runs.append([word])
    has_copula = any(word.is_after_copula for word in read)
    values = tuple(_value_of(run, has_copula=has_copula) for run in runs if run)
    last = read[-1] if read else None
    if last and not values and words.count(last.plain) == 1 and len(words) > 1:
        values = (_value_of([last], has_copula=has_copula),)
        words.remove(last.plain)
    return frozenset(words), values


def _continues(run: Sequence[ComparedWord], word: ComparedWord) -> bool:
    """Return whether a word belongs to the value of the words before it."""
    if not word.is_joined or word.is_left != run[-1].is_left:
        return False
    return not word.place or (word.place in _AT and _is_time(run))


def _value_of(run: Sequence[ComparedWord], *, has_copula: bool) -> Value:
    first = run[0]
    kind = "time" if _is_time(run) else "+".join(sorted({_kind_of(word.written) for word in run}))
    words, is_after = tuple(word.plain for word in run), first.is_after_copula
    return Value(
        words, kind, first.place, first.is_left, is_after_copula=is_after, is_before_copula=has_copula and not is_after
    )


def _is_time(run: Sequence[ComparedWord]) -> bool:
    return any(word.plain in _TIMES or _TIME.fullmatch(word.plain) for word in run)


def _kind_of(word: str) -> str:
    if "@" in word:
        return "code"
    if not _has_digit(word):
        return "name" if _is_value(word) else "word"
    return "code" if any(map(str.isalpha, word)) and word.casefold() not in NUMBER_WORDS else "number"


def _is_value(word: str) -> bool:
    """Return whether a word is a number, a name, a code, a day or a month."""
    return word[0].isupper() or _has_digit(word) or "_" in word or "@" in word or word.casefold() in _TIMES


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word)) or word.casefold() in NUMBER_WORDS
