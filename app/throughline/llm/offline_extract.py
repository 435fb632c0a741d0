"""How the offline model finds words again: sentences, and the best match for a question."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_QUOTE = 300
_SENTENCE = re.compile(r"[^.!?。！？\n]++(?:[.!?](?!\s|$)[^.!?。！？\n]*+)*+[.!?。！？]*+")
_WORD = re.compile(r"\w+")
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
