"""Token counters by name: `tiktoken`, `tiktoken:<encoding>`, `chars`, or your own function as `module:function`."""

import asyncio
import functools
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.context.measure import count_message
from app.domain.errors import SettingInvalid
from app.domain.message import Message, NewMessage
from app.domain.prompt import PromptMessage
from app.domain.text import clean_text
from app.llm.encodings import SHIPPED, load_encoding
from app.turn.ports import TokenCounter

OFF_LOOP_CHARACTERS = 50_000
"""From this length on counting leaves the event loop: it takes about 10 ms."""

PIECE_CHARACTERS = 20_000
"""Longer texts are counted in pieces: tiktoken panics at a million blanks in a row and slows down long before."""

PIECE_SEARCH = 200
"""So far back from a piece's end a blank is looked for: tokens begin with one, so that no word is counted in two."""

DEFAULT_ENCODING = "cl100k_base"


@dataclass(frozen=True, slots=True)
class TiktokenCounter:
    """Counts with a shipped tiktoken encoding, loaded at the first count."""

    encoding: str = DEFAULT_ENCODING

    @property
    def name(self) -> str:
        """The counter's full name, for example `tiktoken:cl100k_base`."""
        return f"tiktoken:{self.encoding}"

    def count(self, text: str) -> int:
        """Return the number of tokens; special tokens and lone surrogates count as plain text."""
        encode = load_encoding(self.encoding).encode_ordinary
        return sum(count_piece(piece, encode) for piece in _pieces(text))


@dataclass(frozen=True, slots=True)
class CharsCounter:
    """Estimates from the UTF-8 length alone: 0.4 tokens for an ASCII character, 0.8 for every other byte.

    Measured against cl100k this over-counts prose in any language and source code; only dense random text (base64,
    hashes: up to 0.75 tokens per character) can exceed it. UTF-8 bytes are the true upper bound, but four times too
    much for English.
    """

    name: str = "chars"

    def count(self, text: str) -> int:
        """Return the estimate, rounded up."""
        size = len(text.encode("utf-8", "replace"))
        other = size - _ascii_characters(text)
        return math.ceil(0.4 * (size - other) + 0.8 * other)


@dataclass(frozen=True, slots=True)
class FunctionCounter:
    """Counts with an operator's own function."""

    name: str
    function: Callable[[str], object]

    def count(self, text: str) -> int:
        """Return what the function says. Raises SettingInvalid if that is no count."""
        tokens = self.function(clean_text(text))
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
            raise SettingInvalid(f"token counter {self.name} returned {tokens!r}: it must return an int of 0 or more")
        return tokens


@functools.cache
def make_counter(name: str) -> TokenCounter:
    """Return the counter of that name; the same name gives the same counter.

    Raises SettingInvalid for a name that is neither known nor an importable function.
    """
    kind, _, rest = name.partition(":")
    if name == "chars":
        return CharsCounter()
    if kind == "tiktoken":
        return _make_tiktoken(name, rest or DEFAULT_ENCODING)
    if kind and rest:
        return _import_counter(name, kind, rest)
    raise SettingInvalid(f"unknown token counter {name!r}: use tiktoken, tiktoken:o200k_base, chars or module:function")


def count_tokens(text_or_messages: str | Sequence[Message | NewMessage | PromptMessage], counter: TokenCounter) -> int:
    """Return the number of tokens of a text, or of messages with their framing, counted anew."""
    if isinstance(text_or_messages, str):
        return counter.count(text_or_messages) if text_or_messages else 0
    return sum(count_message(message, counter.count) for message in text_or_messages)


async def count_tokens_async(text: str, counter: TokenCounter) -> int:
    """Return the number of tokens of `text`; a long text is counted in a thread, so that nobody else waits."""
    if len(text) < OFF_LOOP_CHARACTERS:
        return count_tokens(text, counter)
    return await asyncio.to_thread(count_tokens, text, counter)


async def warm_counter(counter: TokenCounter) -> None:
    """Let the counter load what it needs in a thread, before the first turn has to wait for it."""
    await asyncio.to_thread(counter.count, "warm")


def count_piece(text: str, encode: Callable[[str], list[int]]) -> int:
    """Return the tokens of a piece; what makes the tokenizer panic is estimated from its characters."""
    try:
        return len(encode(text))
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pyo3's, no Exception, and nowhere to be imported from
            raise
        return CharsCounter().count(text)


def _pieces(text: str) -> Iterator[str]:
    """Cut a long text before blanks where there are some, so that the sum exceeds the whole by next to nothing."""
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        end = start + PIECE_CHARACTERS
        blank = text.rfind(" ", end - PIECE_SEARCH, end)
        end = end if blank < 0 else blank
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _ascii_characters(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("ascii", "ignore"))


def _make_tiktoken(name: str, encoding: str) -> TiktokenCounter:
    if encoding not in SHIPPED:
        raise SettingInvalid(f"unknown token counter {name!r}: shipped encodings are {', '.join(sorted(SHIPPED))}")
    return TiktokenCounter(encoding)


def _import_counter(name: str, module_name: str, attribute: str) -> FunctionCounter:
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise SettingInvalid(f"token counter {name!r} cannot be imported ({error}): name it module:function") from error
    if not callable(function):
        raise SettingInvalid(f"token counter {name!r} is no function: it must take a text and return an int")
    counter = FunctionCounter(name, function)
    _try_counter(counter)
    return counter


def _try_counter(counter: FunctionCounter) -> None:
    try:
        counter.count("one two three")
    except SettingInvalid:
        raise
    except Exception as error:  # somebody else's code: whatever it raises, the setting is what is wrong
        raise SettingInvalid(
            f"token counter {counter.name!r} failed on a short text with {type(error).__name__}: "
            "it must take a text and return an int"
        ) from error
