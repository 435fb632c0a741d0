"""Finding the sentence that answers a question in texts: words are compared, nothing is understood."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from throughline.llm.offline_sentences import FILLER_WORDS, is_question, sentences_of

LEAST_WORD = 3
"""Shorter words are ignored when a question is matched, unless they are numbers or have a character beyond ASCII."""

STEM_CHARACTERS = 6
"""`allergic`, `allergy` and `allergies` begin alike for so long."""

ANSWERING_PERCENT = 50
"""A sentence with this share of what a question is about answers it, by length of the words."""

_HAN = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[^\W{_HAN}]+|[{_HAN}]")
_TAG = re.compile(r"\[#\d+[^\[\]\n]{0,80}\]\s*+")
_ASKING_WORDS = (
    "what who whom whose when where which why how tell remind repeat recall find search list show was wer wem wessen "
    "wann wo welche welcher welches warum wie qué quién cuándo dónde cuál cómo quel quelle quand où comment"
)
"""A sentence that begins with one of these asks, also without a question mark."""

_EMPTY_WORDS = (
    "are were been being did does done has have had can could would should shall will may might must the and for with "
    "about from into that this these those there then than them they their its our ours you your yours his her hers "
    "him she mine not any some all again just please now know knew remember remembered say said told mention mentioned "
    "call called name named ich mir mich mein meine meinen dein deine ist sind bin habe hat heißt der die das den dem "
    "ein eine und für mit von los las una uno por para con mis soy está les des une est mon mes 我 你 的 是 "
    "什 么 吗 了 在 谁 哪 里 怎 几 呢"
)
"""Words that no question is about."""

_ASKING = frozenset(_ASKING_WORDS.split())
_EMPTY = FILLER_WORDS | _ASKING | frozenset(_EMPTY_WORDS.split())


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence, who said it, and whether it says what the question is about or only shares a word with it."""

    who: str
    sentence: str
    answers: bool


def question_in(message: str) -> str:
    """Return the sentences of `message` that ask for something, '' if none does."""
    return " ".join(sentence for sentence in sentences_of(message) if is_question(sentence) or _begins_asking(sentence))


def words_of(text: str) -> dict[str, str]:
    """Return what `text` is about: its words in order, as they stand there, each by what it begins with."""
    words = (word for word in _WORD.findall(text) if word.casefold() not in _EMPTY)
    telling = (word for word in words if len(word) >= LEAST_WORD or word.isdigit() or not word.isascii())
    return {_stem(word): word for word in telling}


def best_quote(question: str, texts: Iterable[tuple[str, str]]) -> Quote | None:
    """Return of (who, text) the sentence that shares most with the question, of equal ones the last; None if none does.

    Questions and facts that were replaced are not quoted.
    """
    wanted = {stem: len(word) for stem, word in words_of(question).items()}
    best, most = None, 1
    for who, text in texts:
        for sentence in sentences_of(_TAG.sub("", _current_lines(text))):
            weight = sum(wanted.get(stem, 0) for stem in words_of(sentence))
            if weight >= most and not is_question(sentence):
                most = weight
                best = Quote(who, sentence, answers=weight * 100 >= ANSWERING_PERCENT * sum(wanted.values()))
    return best


def _current_lines(text: str) -> str:
    """Return the text without the lines that a summary says were replaced."""
    return "\n".join(line for line in text.split("\n") if "[#" not in line or "replaced by" not in line)


def _begins_asking(sentence: str) -> bool:
    first = _WORD.search(sentence)
    return first is not None and first.group().casefold() in _ASKING


def _stem(word: str) -> str:
    return word.casefold().removesuffix("s")[:STEM_CHARACTERS]
