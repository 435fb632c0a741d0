"""Cleaning of a provider's message about a failed call, for the log and for operators: short, one line, no secrets.

Providers repeat parts of the request and of the key in their error messages. Both are removed here. `classify_error.py`
calls it for every failure of a provider.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from unicodedata import category

from pydantic import SecretStr

from throughline.llm.provider_error import MAX_MESSAGE

MOST_CHARACTERS = 500
REMOVED = "…"
"""Stands in a cleaned message for each part that was taken out."""

RUN_WORDS = 4
"""Number of consecutive words, the same in a message and in the request, that count as a repetition of the request."""

SHORTEST_WORD = 6
"""Least length at which a text of the request that is a single word counts as repeated.

Shorter ones, such as `no` and `thanks`, occur in any message.
"""

SHORTEST_SECRET = 6
SHORTEST_ID = 20
SWITCHES_OF_RANDOM = 0.25
"""Share of places in a random text at which its characters change between capitals, small letters and digits."""

ID_KINDS: Mapping[str, Callable[[str], bool]] = {"digit": str.isdigit, "capital": str.isupper, "small": str.islower}

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\U0010ffff"
"""Scripts that put no spaces between words: each of their characters counts as a word."""

_WORD = re.compile(rf"[^\W{_UNSPACED}]+|\w")
_ESCAPE = re.compile(r'(?<!\\)\\++(?:u([0-9a-fA-F]{4})|[nrt"/])')
_BEARER = re.compile(r"\b(?:bearer|basic)\s++\S+|://[^/\s@]*+@", re.IGNORECASE)
_TOKEN = re.compile(r"\S+")
_KEY = re.compile(r"\*{3}|AIza|AKIA|(?<![A-Za-z0-9])(?:(?:sk|pk|rk|xai|nvapi|pplx|csk)-|(?:gsk|hf|tl|fw|ghp)_)[\w*-]")
_ORGANISATION = re.compile(r"(?<![A-Za-z0-9])(?:org|proj|acct|cus|wrkspc)[-_][A-Za-z0-9]{6}")
_EMAIL = re.compile(r"[^\s@]@[^\s@.]++\.")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]{16}|[0-9A-F]{16}|\d{12}")
_ID = re.compile(r"[A-Za-z0-9+/=_-]++")
_SEPARATOR = re.compile(r"[^A-Za-z0-9]+")
_REPEATED = re.compile(rf"{REMOVED}(?:[^\w{REMOVED}]*+{REMOVED})+")


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent with a call and must not come back in a message: the request's texts, and the configured keys."""

    texts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def clean_message(said: str, sent: Sent) -> str:
    """Return the provider's message on one line of at most MOST_CHARACTERS, '' if no word is left of it.

    Keys, ids and addresses are removed from it, and so are parts that repeat the request.
    """
    if not said:
        return ""
    text = _on_one_line(said[: _whole_tokens(said)])
    spans = sorted([*_secret_spans(text, sent.secrets), *_repeated_spans(text, sent.texts)])
    cleaned = " ".join(_REPEATED.sub(REMOVED, _without(text, spans)).split())
    if len(cleaned) > MOST_CHARACTERS:
        cleaned = cleaned[: MOST_CHARACTERS - 1].rstrip() + REMOVED
    return cleaned if _WORD.search(cleaned) else ""


def secrets_of(model: object) -> tuple[str, ...]:
    """Return the keys and tokens that a model of a provider's package holds."""
    return tuple(
        value.get_secret_value() for value in getattr(model, "__dict__", {}).values() if isinstance(value, SecretStr)
    )


def _whole_tokens(said: str) -> int:
    """Return the message's length without a last token that may have been cut off: part of a key looks like none."""
    if len(said) < MAX_MESSAGE:
        return len(said)
    return max(said.rfind(" "), said.rfind("\n"), 0)


def _on_one_line(said: str) -> str:
    """Return the text without control and format characters, and with the escapes of a JSON text undone."""
    plain = _unescaped(said)
    return "".join(" " if category(char) in {"Zl", "Zp"} or category(char)[0] == "C" else char for char in plain)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text)


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    pieces, done = [], 0
    for start, end in spans:
        if end > done:
            pieces += [text[done : max(start, done)], REMOVED]
            done = end
    return "".join((*pieces, text[done:]))


def _secret_spans(text: str, secrets: Sequence[str]) -> Iterator[tuple[int, int]]:
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            starts = (index for index in range(len(text)) if text.startswith(secret, index))
            yield from ((start, start + len(secret)) for start in starts)
    yield from (match.span() for match in _BEARER.finditer(text))
    yield from (match.span() for match in _TOKEN.finditer(text) if _is_secret(match[0]))


def _is_secret(token: str) -> bool:
    """Return whether a text without spaces holds a key, an address or an id. Names of models are none of these."""
    if any(pattern.search(token) for pattern in (_KEY, _ORGANISATION, _EMAIL, _UUID, _HEX)):
        return True
    return any(map(_is_mixed, _SEPARATOR.split(token))) or any(map(_is_random, _ID.findall(token)))


def _is_mixed(piece: str) -> bool:
    return len(piece) >= SHORTEST_ID and not piece.isalpha()


def _is_random(piece: str) -> bool:
    kinds = pairwise(map(_kind, piece))
    switches = sum(one != other for one, other in kinds if one and other)
    return len(piece) >= SHORTEST_ID and switches >= len(piece) * SWITCHES_OF_RANDOM


def _kind(char: str) -> str:
    """Return which of the three kinds of ID_KINDS a character is, '' for a separator."""
    return next((kind for kind, test in ID_KINDS.items() if test(char)), "")


def _repeated_spans(text: str, sent: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the parts of the text that repeat the request: RUN_WORDS words or more, or a whole shorter text of it."""
    words = list(_WORD.finditer(text))
    spelled = [match[0] for match in words]
    repeated, vocabulary = _common(spelled, sent)
    marked = {
        index + offset
        for index in range(len(words))
        for size in range(1, min(RUN_WORDS, len(words) - index) + 1)
        if tuple(spelled[index : index + size]) in repeated
        for offset in range(size)
    }
    for first in sorted(marked):
        if first - 1 not in marked:
            last = next(index for index in range(first, len(words)) if index + 1 not in marked)
            before, after = _cut_words(spelled, first, last, vocabulary)
            yield words[first - before].start(), words[last + after].end()


def _common(spelled: Sequence[str], sent: Sequence[str]) -> tuple[set[tuple[str, ...]], str]:
    """Return the runs and short texts of the request that the message repeats, and all words of those texts."""
    runs = set(_runs(spelled))
    common: set[tuple[str, ...]] = set()
    vocabulary: set[str] = set()
    for text in sent:
        words = _WORD.findall(_unescaped(text))
        is_short = 0 < len(words) < RUN_WORDS and (len(words) > 1 or len(words[0]) >= SHORTEST_WORD)
        found = {tuple(words)} if is_short else runs.intersection(_runs(words))
        if not is_short or set(spelled).issuperset(words):
            common |= found
            vocabulary.update(words if found else ())
    return common, f" {' '.join(vocabulary)} "


def _runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[index:] for index in range(RUN_WORDS)), strict=False)


def _cut_words(spelled: Sequence[str], first: int, last: int, vocabulary: str) -> tuple[int, int]:
    """Return 1 for each neighbour of a run that may be the rest of a word at which the repetition was cut, else 0."""
    before = first > 0 and f"{spelled[first - 1]} " in vocabulary
    after = last + 1 < len(spelled) and f" {spelled[last + 1]}" in vocabulary
    return int(before), int(after)
