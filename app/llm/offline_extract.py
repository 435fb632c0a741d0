"""How the offline model finds words again: sentences, the best match for a question, and an extract of a transcript."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

MAX_QUOTE = 300
MAX_SENTENCES = 4000
NOTHING = "Nothing of substance yet."
"""What an extract of nothing says; in the text of a further one it is nothing again."""
_SENTENCE = re.compile(r"[^.!?\n]++(?:[.!?](?!\s|$)[^.!?\n]*+)*+[.!?]*+")
_WORD = re.compile(r"\w+")
_BULLETS = re.compile(r"^(?:- )+")
_TAG_LINE = re.compile(r"^[^\S\n]*+</?[\w -][^>\n]*+>[^\S\n]*+$", re.MULTILINE)
_WEIGHTY = re.compile(
    r"\b(?:remember|always|never|must|decided|agreed|prefer|name is|call me|deadline|because|plan|todo|error|failed)\b"
    r"|\d|https?://|\b\w+[/\\]\w+|\bI (?:am|want|need|like|live|work)\b|\bmy\b",
    re.IGNORECASE,
)
_STOP_TEXT = (
    "a about an and are as at be but by can could did do does for from had has have "
    "he her him his how i if in is it its me my of on or our please said say "
    "she so tell than that the their them then there they this to told us was we were what when "
    "where which who why will with would you your "
)
_STOP_WORDS = frozenset(_STOP_TEXT.split())


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of the visible conversation and who said it."""

    speaker: str
    text: str


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of `text` in order, shortened to what is worth quoting."""
    for match in _SENTENCE.finditer(text):
        sentence = " ".join(match.group().split())
        if _WORD.search(sentence):
            yield sentence if len(sentence) <= MAX_QUOTE else sentence[: MAX_QUOTE - 1] + "…"


def words_of(text: str) -> frozenset[str]:
    """Return the words that carry meaning, in a form that matches plurals."""
    found = (word.casefold() for word in _WORD.findall(text))
    return frozenset(word.rstrip("s") or word for word in found if word not in _STOP_WORDS)


def best_sentences(question: str, sentences: Sequence[Sentence], limit: int = 3) -> tuple[Sentence, ...]:
    """Return the sentences that share the rarest words with the question, best first, newer before older."""
    wanted = words_of(question)
    found = [(words_of(sentence.text) & wanted, index) for index, sentence in enumerate(sentences)]
    matching = [(words, index) for words, index in found if words]
    frequency = Counter(word for words, _ in matching for word in words)
    ranked = sorted(matching, key=lambda pair: (-sum(1 / frequency[word] + 1 for word in pair[0]), -pair[1]))
    unique = dict.fromkeys(sentences[index] for _, index in ranked)
    return tuple(unique)[:limit]


def extract(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the weightiest sentences of `text` in their order, within `max_tokens` and a third of its length.

    `text` may hold an earlier extract: its dashes are taken off, or they would grow with each one.
    """
    found = (_BULLETS.sub("", sentence) for sentence in split_sentences(without_markup(text)))
    sentences = list(dict.fromkeys(sentence for sentence in found if sentence != NOTHING))[-MAX_SENTENCES:]
    budget = min(max_tokens, math.ceil(count(text) / 3))
    frequency = Counter(word for sentence in sentences for word in words_of(sentence))
    order = sorted(range(len(sentences)), key=lambda index: (-_weight(sentences[index], frequency), index))
    kept = _fitting(order, [count(sentence) + 2 for sentence in sentences], budget)
    return "\n".join(f"- {sentences[index]}" for index in sorted(kept))


def _fitting(order: Iterable[int], costs: Sequence[int], budget: int) -> Iterator[int]:
    for index in order:
        if costs[index] <= budget:
            yield index
            budget -= costs[index]


def _weight(sentence: str, frequency: Counter[str]) -> float:
    words = words_of(sentence)
    common = sum(1 for word in words if frequency[word] > 1)
    return 2.0 * min(len(_WEIGHTY.findall(sentence)), 4) + common / (1 + len(words))


def without_markup(text: str) -> str:
    """Return `text` without lines that hold nothing but a tag."""
    return _TAG_LINE.sub("", text)
