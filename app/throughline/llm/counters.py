"""Token counters by name: `tiktoken`, `tiktoken:<encoding>`, `transformers:<name or path>`, `chars`.

Any other name with a colon is an operator's function; see plugin_counter.py.
"""

import functools
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tiktoken.model import encoding_name_for_model

from throughline.context.measure import count_message
from throughline.domain.errors import SettingInvalid
from throughline.domain.message import Message, NewMessage
from throughline.domain.prompt import PromptMessage
from throughline.domain.text import clean_text
from throughline.execution.compute_threads import run_in_compute_thread
from throughline.llm.chars_counter import CharsCounter
from throughline.llm.context_windows import names_of
from throughline.llm.encodings import SHIPPED, load_encoding
from throughline.llm.plugin_counter import import_counter
from throughline.ports.models import TokenCounter

PIECE_CHARACTERS = 20_000
"""Longest piece that is counted at once: tiktoken panics at a million spaces in a row and slows down long before."""

PIECE_SEARCH = 200
"""Distance from a piece's end within which a space is searched, so that no word is counted in two parts."""

SHORT_CHARACTERS = 64
"""Longest text in the cache of short counts: call ids and tool names, counted again before every model call."""

KEPT_SHORT, KEPT_LONG = 16_384, 64
"""Number of cached counts of short texts and of others, such as system prompts."""

DEFAULT_ENCODING = "cl100k_base"
SAME_VOCABULARY = {"o200k_harmony": "o200k_base"}
"""Encodings that differ from a shipped one only in special tokens, which count as plain text here."""


@dataclass(frozen=True, slots=True)
class TiktokenCounter:
    """Token counter with a shipped tiktoken encoding, which is loaded at the first count."""

    encoding: str = DEFAULT_ENCODING

    @property
    def name(self) -> str:
        """The counter's full name, for example `tiktoken:cl100k_base`."""
        return f"tiktoken:{self.encoding}"

    def count(self, text: str) -> int:
        """Return the number of tokens; special tokens and lone surrogates count as plain text."""
        if len(text) <= SHORT_CHARACTERS:
            return _count_short(self.encoding, text)
        if len(text) <= PIECE_CHARACTERS:
            return _count_long(self.encoding, text)
        encode = load_encoding(self.encoding).encode_ordinary
        return sum(count_piece(piece, encode) for piece in _pieces(text))


@functools.lru_cache(KEPT_SHORT)
def _count_short(encoding: str, text: str) -> int:
    return count_piece(text, load_encoding(encoding).encode_ordinary)


@functools.lru_cache(KEPT_LONG)
def _count_long(encoding: str, text: str) -> int:
    return count_piece(text, load_encoding(encoding).encode_ordinary)


class LocalTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that counting needs; its package is optional."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Sized:
        """Return the tokens of a text, with or without the model's special tokens."""


@dataclass(frozen=True, slots=True)
class TransformersCounter:
    """Token counter with a model's own tokenizer from a local file."""

    name: str
    tokenizer: LocalTokenizer

    def count(self, text: str) -> int:
        """Return the number of tokens; special tokens and lone surrogates count as plain text."""
        return sum(count_piece(piece, self._encode) for piece in _pieces(clean_text(text)))

    def _encode(self, text: str) -> Sized:
        return self.tokenizer.encode(text, add_special_tokens=False)


def counter_of(model: str) -> str:
    """Return the name of the counter for a model, such as `openai:gpt-4o`, by tiktoken's table of OpenAI's models.

    For a model without a shipped vocabulary it is `tiktoken`, which means `tiktoken:cl100k_base`.
    """
    for name in names_of(model.lower()):
        with suppress(KeyError):
            encoding = encoding_name_for_model(name)
            encoding = SAME_VOCABULARY.get(encoding, encoding)
            return f"tiktoken:{encoding}" if encoding in SHIPPED and encoding != DEFAULT_ENCODING else "tiktoken"
    return "tiktoken"


@functools.cache
def make_counter(name: str) -> TokenCounter:
    """Return the token counter with this name; the same name gives the same object.

    Raises SettingInvalid for a name that is neither known nor an importable function that counts.
    """
    kind, _, rest = name.partition(":")
    if name == "chars":
        return CharsCounter()
    if kind == "tiktoken":
        return _make_tiktoken(name, rest or DEFAULT_ENCODING)
    if kind == "transformers" and rest:
        return _make_transformers(name, rest)
    if kind and rest:
        return import_counter(name)
    raise SettingInvalid(
        f"unknown token counter {name!r}: use tiktoken, tiktoken:o200k_base, transformers:<name or path>, chars or "
        "module:function"
    )


def count_tokens(text_or_messages: str | Sequence[Message | NewMessage | PromptMessage], counter: TokenCounter) -> int:
    """Return the number of tokens of a text, or of messages with their framing, without using stored counts."""
    if isinstance(text_or_messages, str):
        return counter.count(text_or_messages) if text_or_messages else 0
    return sum(count_message(message, counter.count) for message in text_or_messages)


async def warm_counter(counter: TokenCounter) -> None:
    """Load the counter's data in a thread, so that the first turn does not have to wait for it."""
    await run_in_compute_thread(functools.partial(counter.count, "warm"))


def count_piece(text: str, encode: Callable[[str], Sized]) -> int:
    """Return the tokens of a piece; if the tokenizer panics, estimate them from the characters."""
    try:
        return len(encode(text))
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pyo3's class: no subclass of Exception, and not importable
            raise
        return CharsCounter().count(text)


def _pieces(text: str) -> Iterator[str]:
    """Split a long text, if possible before spaces, so that the pieces' counts add up to nearly the whole's."""
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        end = start + PIECE_CHARACTERS
        blank = text.rfind(" ", end - PIECE_SEARCH, end)
        end = end if blank < 0 else blank
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _make_tiktoken(name: str, encoding: str) -> TiktokenCounter:
    if encoding not in SHIPPED:
        raise SettingInvalid(f"unknown token counter {name!r}: shipped encodings are {', '.join(sorted(SHIPPED))}")
    return TiktokenCounter(encoding)


def _make_transformers(name: str, rest: str) -> TransformersCounter:
    try:
        from throughline.llm.local_tokenizers import load_tokenizer  # noqa: PLC0415  # its packages are optional
    except ImportError as error:
        raise SettingInvalid(
            f"token counter {name!r} needs packages that are not installed: pip install 'throughline[transformers]'"
        ) from error
    return TransformersCounter(name, load_tokenizer(rest))
