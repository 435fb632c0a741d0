"""Search for the sentence that answers a question, for the offline model: only words are compared."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from throughline.context.questions import ASKING_WORDS, QUESTION_WORDS, begins_asking
from throughline.llm.offline_sentences import FILLER_WORDS, is_question, sentences_of

LEAST_WORD = 3
"""Shortest word compared with a question, except numbers and words with a non-ASCII character."""

STEM_CHARACTERS = 6
"""Number of first letters compared: `allergic`, `allergy` and `allergies` share as many."""

ANSWERING_PERCENT = 50
"""Share of a question's words, by their length, that a sentence must contain to answer it."""

_HAN = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[^\W{_HAN}]+|[{_HAN}]")
_TAG = re.compile(r"\[#\d+[^\[\]\n]{0,80}\]\s*+")
_EMPTY_WORDS = (
    "are were been being did does done has have had can could would should shall will may might must the and for with "
    "about from into that this these those there then than them they their its our ours you your yours his her hers "
    "him she mine not any some all just now knew remembered call called name named comment "
    "ich mir mich mein meine meinen dein deine ist sind bin habe hat heißt der die das den dem "
    "ein eine und für mit von los las una uno por para con mis soy está les des une est mon mes 我 你 的 是 "
    "什 么 吗 了 在 谁 哪 里 怎 几 呢"
)
"""Words that are not compared, because no question is about them."""

_EMPTY = FILLER_WORDS | QUESTION_WORDS | ASKING_WORDS | frozenset(_EMPTY_WORDS.split())


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence and its speaker; `answers` is False if it merely shares a word with the question."""

    who: str
    sentence: str
    answers: bool


def question_in(message: str) -> str:
    """Return the sentences of `message` that ask for something, '' if none does."""
    return " ".join(sentence for sentence in sentences_of(message) if is_question(sentence) or begins_asking(sentence))


def words_of(text: str) -> dict[str, str]:
    """Return the meaningful words of `text` in order, keyed by their stems."""
    words = (word for word in _WORD.findall(text) if word.casefold() not in _EMPTY)
    telling = (word for word in words if len(word) >= LEAST_WORD or word.isdigit() or not word.isascii())
    return {_stem(word): word for word in telling}


def best_quote(question: str, texts: Iterable[tuple[str, str]]) -> Quote | None:
    """Return the sentence of the (speaker, text) pairs that shares most with the question; None if none shares a word.

    The last of equal ones is returned. Questions and replaced facts are not quoted.
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
    """Return the text without the lines that a summary marks as replaced."""
    return "\n".join(line for line in text.split("\n") if "[#" not in line or "replaced by" not in line)


def _stem(word: str) -> str:
    return word.casefold().removesuffix("s")[:STEM_CHARACTERS]
