"""Tokenization of text into search terms: stemmed words, and code-like text also unchanged."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import snowballstemmer  # type: ignore[import-untyped]  # ships no types

from throughline.domain.errors import SettingInvalid

# Stop words, neither indexed nor searched: words so common that they say nothing about a text's subject.
#
# The lists are short. Words such as `how` and `about` get a low weight by their frequency, but may be a query's only
# match.

LISTS = {
    "english": """
        a am an and are as at be been but by can could d did do does don for from had has have he her him his
        i if in into is it its just ll m me my no not of on or our re s she should so some such t that the
        their then there these they this to us ve was we were will with would you your""",
    "german": """
        aber als am an auch auf aus bei bin bis bist da das dass dem den der des die dies diese dieser du ein eine
        einem einen einer er es für hat ich ihr im in ist ja kann man mich mir mit nach nicht noch nur ob oder sein
        sich sie sind so und uns vom von vor war was wenn wer wie wir wird zu zum zur""",
    "french": """
        au aux avec ce ces dans de des du elle en est et il ils je la le les leur lui ma mais me mon ne nous on ou
        par pas pour qu que qui sa se ses son sont sur ta te tu un une vos votre vous""",
    "spanish": """
        al como con de del el ella en es esta este la las le les lo los me mi mis muy más ni no nos o para pero por
        que se si sin su sus te tu un una uno y ya yo""",
}

STOP_WORDS = {language: frozenset(words.split()) for language, words in LISTS.items()}
"""Stop words by language. A language without a list has none, which only makes the index larger."""

_WORD = re.compile(r"[^\W\d_]+")


def stop_words_of(text: str) -> frozenset[str]:
    """Return the stop words of the language from whose list the text has the most words.

    They are the English ones if no list has any of its words, so that none of its words is left out. They are none if
    the text has no words.
    """
    words = {word.lower() for word in _WORD.findall(text)}
    return max(STOP_WORDS.values(), key=lambda listed: len(words & listed)) if words else frozenset()


ANALYZER_VERSION = 2
"""Must change whenever a text's terms change; text indexed under another version is indexed again."""

MAX_TERM_CHARACTERS = 128
"""Longest term. Longer ones are hashes, keys or encoded data, and are found by their first characters."""

MAX_PARTS = 32
"""Most parts that are indexed of one code-like token; what follows is data, not words."""

MAX_TEXT_CHARACTERS = 100_000
"""Most characters indexed of a text; of a longer text the first four fifths and the last fifth of this length."""

RUN = re.compile(r"\w(?:[\w./:\\@#$%&+=~'’-]*\w)?")
PART = re.compile(r"[^\W\d_]+|\d+")
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
APOSTROPHE = re.compile(r"['’]\w{0,2}$")
SLASH = re.compile(r"[/\\]")
LINE_NUMBER = re.compile(r"(?::\d+){1,2}$")
# Scripts written without spaces: kana, Han with its extensions, Hangul, Thai, Lao, Khmer.
UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)


@dataclass(frozen=True, slots=True)
class Term:
    """A search term and its character range in the text.

    `is_name`: a code-like token, such as a path or `getUserById`, as a whole or after its last slash. `is_part`: a part
    of such a token.
    """

    text: str
    start: int
    end: int
    is_name: bool = False
    is_part: bool = False


class Analyzer:
    """The tokenizer for one language: all words are stemmed by its rules, also those of other languages.

    Text in a script without spaces, such as Chinese, gives pairs of characters.
    """

    def __init__(self, language: str) -> None:
        """Stem words by the Snowball rules of `language`. Raises SettingInvalid for an unsupported language."""
        self.name = f"{language}-{ANALYZER_VERSION}"
        try:
            stemmer = snowballstemmer.stemmer(language)
        except KeyError as error:
            known = ", ".join(sorted(snowballstemmer.algorithms()))
            raise SettingInvalid(f"SEARCH_LANGUAGE: {language!r} is not known; allowed: {known}.") from error
        self._stem = lru_cache(maxsize=100_000)(stemmer.stemWord)
        self._stop_words = STOP_WORDS.get(language, frozenset())

    def terms(self, text: str) -> Iterator[Term]:
        """Yield the terms of `text`: words, and code-like tokens with their last path component and their parts."""
        for run in RUN.finditer(text):
            yield from self._of_run(run.group(), run.start())

    def is_stop_word(self, word: str) -> bool:
        """Whether the folded word is in the language's list of words that are not indexed, such as `the`."""
        return word in self._stop_words

    def word(self, text: str) -> str:
        """Return the term of a single word: folded, stemmed and limited in length."""
        folded = fold(text)
        stemmed: str = self._stem(folded)
        return stemmed[:MAX_TERM_CHARACTERS]

    def _of_run(self, run: str, start: int) -> Iterator[Term]:
        end = start + len(run)
        plain = APOSTROPHE.sub("", run)
        if plain.isalpha() and not HUMP.search(plain):
            yield from self._of_word(plain, start)
            return
        for form in _forms(fold(run)[:MAX_TERM_CHARACTERS]):
            yield Term(form, start, end, is_name=True)
        for number, part in enumerate(PART.finditer(run)):
            if number == MAX_PARTS:
                return
            for term in self._of_part(part.group(), start + part.start()):
                yield replace(term, is_part=True)

    def _of_part(self, part: str, start: int) -> Iterator[Term]:
        """Yield the terms of a part between separators, split at case changes as in `getUserById`."""
        for piece in HUMP.split(part):
            yield from self._of_word(piece, start)
            start += len(piece)

    def _of_word(self, word: str, start: int) -> Iterator[Term]:
        if UNSPACED.search(word):
            yield from _pairs(word, start)
            return
        if not self.is_stop_word(fold(word)):
            yield Term(self.word(word), start, start + len(word))


@lru_cache(maxsize=100_000)
def fold(text: str) -> str:
    """Return `text` normalised for comparison: without case, accents and width differences."""
    if text.isascii():
        return text.lower()
    taken_apart = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(character for character in taken_apart if not unicodedata.combining(character))
    return unicodedata.normalize("NFKC", kept)


def shortened(text: str) -> str:
    """Return the part of a text that is indexed: all of it, or its beginning and end."""
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    tail = MAX_TEXT_CHARACTERS // 5
    return f"{text[: MAX_TEXT_CHARACTERS - tail]}\n{text[-tail:]}"


def _forms(run: str) -> dict[str, None]:
    """Return the token with and without a line number at its end, and of each also the part after the last slash."""
    whole = (run, LINE_NUMBER.sub("", run))
    return dict.fromkeys(form for form in (*whole, *(SLASH.split(form)[-1] for form in whole)) if form)


def _pairs(run: str, start: int) -> Iterator[Term]:
    """Yield overlapping pairs of characters, the terms of scripts without spaces; of one character that character."""
    if len(run) == 1:
        yield Term(fold(run), start, start + 1)
    for place in range(len(run) - 1):
        yield Term(fold(run[place : place + 2]), start + place, start + place + 2)
