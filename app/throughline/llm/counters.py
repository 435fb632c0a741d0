"""Token counters by name: `tiktoken`, `tiktoken:<encoding>`, `transformers:<name or path>`, `chars`.

Any other name with a colon is an operator's function; see PluginCounter.
"""

import base64
import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import tiktoken
from tiktoken.model import encoding_name_for_model

from throughline.domain.errors import SettingInvalid
from throughline.domain.message import clean_text
from throughline.execution.call_plugin import PluginCall, PluginTimedOut, ThreadLimitReached, import_plugin
from throughline.execution.compute_threads import run_in_compute_thread
from throughline.execution.error_boundary import Raised, outcome_of
from throughline.llm.context_windows import names_of
from throughline.llm.provider_error import raised_as
from throughline.ports.models import TokenCounter

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class CharsCounter:
    """Estimate from the UTF-8 length: 0.4 tokens for an ASCII character, 0.8 for every other byte.

    Measured against cl100k, it overestimates prose in any language and source code. Only dense random text (base64,
    hashes: up to 0.75 tokens per character) can exceed it. UTF-8 bytes are the true upper bound, but four times too
    much for English.
    """

    name: str = "chars"

    def count(self, text: str) -> int:
        size = len(text.encode("utf-8", "replace"))
        other = size - _ascii_characters(text)
        return math.ceil(0.4 * (size - other) + 0.8 * other)


def _ascii_characters(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("ascii", "ignore"))


TRIAL_SECONDS = 2.0
"""Time limit for the trial texts, about 2,500 tokens: a slower counter would delay every turn."""

TRIAL_TEXTS = ("", "one two three", "One two three, vier fünf sechs, 七八九 <|endoftext|> 🙂\n" * 200)
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class PluginCounter:
    """Token counter that calls an operator's function; if it fails, characters are counted, so that no turn fails."""

    name: str
    function: Callable[[str], object]
    _has_failed: bool = field(default=False, compare=False)

    def count(self, text: str) -> int:
        """Return the function's count, or the estimate of `chars` if it gives no valid count."""
        cleaned = clean_text(text)
        outcome = outcome_of(lambda: _count(self.function, cleaned))
        if isinstance(outcome, Raised):
            self._log_first(outcome.error)
            return CharsCounter().count(cleaned)
        return outcome.value

    def _log_first(self, error: BaseException) -> None:
        """Log only the first failure, because a broken counter fails for every message."""
        if not self._has_failed:
            self._has_failed = True
            log.warning(
                "token counter of plugin failed, tokens estimated", counter=self.name, error=type(error).__name__
            )


def import_counter(name: str) -> PluginCounter:
    """Return the counter `name`, tried on short, empty and long texts.

    Raises SettingInvalid if it cannot be imported or called, raises, returns no count or takes too long.
    """
    function = import_plugin(name, kind="token counter")
    if not callable(function):
        raise SettingInvalid(f"token counter {name!r} is no function: it must take a text and return an int")
    trial = PluginCall(lambda: [_count(function, text) for text in TRIAL_TEXTS], lambda _: None)
    outcome = trial.wait(TRIAL_SECONDS)
    if isinstance(outcome, Raised):
        raise SettingInvalid(f"token counter {name!r} {_problem(outcome.error)}")
    return PluginCounter(name, function)


class _NoCount(Exception):
    """Raised for a return value that is no number of tokens."""


def _count(function: Callable[[str], object], text: str) -> int:
    value = function(text)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _NoCount(f"returned {repr(value)[:60]}")
    return value


def _problem(error: BaseException) -> str:
    match error:
        case ThreadLimitReached():
            return f"could not be tried: {error}"
        case _NoCount():
            found = str(error)
        case PluginTimedOut():
            found = "takes too long"
        case _:
            found = f"raised {type(error).__name__}"
    return f"{found}: it must take a text and return an int of 0 or more"


VOCABULARIES = Path(__file__).parent / "vocabularies"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """One shipped vocabulary. `pattern` splits a text into the pieces that are encoded one by one."""

    name: str
    sha256: str
    pattern: str


# Both patterns are tiktoken's own (tiktoken_ext/openai_public.py).
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_O200K_PIECES = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
)
O200K_PATTERN = "|".join(_O200K_PIECES)

SHIPPED = {
    vocabulary.name: vocabulary
    for vocabulary in (
        Vocabulary("cl100k_base", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7", CL100K_PATTERN),
        Vocabulary("o200k_base", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d", O200K_PATTERN),
    )
}


@functools.cache
def load_encoding(name: str) -> tiktoken.Encoding:
    """Return the encoding, built once per process (a third of a second of CPU the first time).

    It has no special tokens; text that looks like one is encoded as plain text. Raises SettingInvalid for an encoding
    that is not shipped, or a vocabulary file that is missing or changed.
    """
    vocabulary = SHIPPED.get(name)
    if vocabulary is None:
        raise SettingInvalid(f"unknown token encoding {name!r}: use one of {', '.join(sorted(SHIPPED))}")
    return tiktoken.Encoding(
        name, pat_str=vocabulary.pattern, mergeable_ranks=_read_ranks(vocabulary), special_tokens={}
    )


def _read_ranks(vocabulary: Vocabulary) -> dict[bytes, int]:
    path = VOCABULARIES / f"{vocabulary.name}.tiktoken"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingInvalid(f"the vocabulary {path.name} cannot be read: install the package again") from error
    if hashlib.sha256(data).hexdigest() != vocabulary.sha256:
        raise SettingInvalid(f"the vocabulary {path.name} was changed: install the package again")
    pairs = (line.split() for line in data.splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


PIECE_CHARACTERS = 20_000
"""Longest piece that is counted at once: tiktoken panics at a million spaces in a row and slows down long before."""

PIECE_SEARCH = 200
"""Distance from a piece's end within which a space is searched, so that no word is counted in two parts."""

SHORT_CHARACTERS = 64
"""Longest text in the cache of short counts: call ids and tool names, counted again before every model call."""

KEPT_SHORT, KEPT_LONG = 16_384, 64
"""Number of cached counts of short texts and of others, such as system prompts."""

TOKENIZER_FILE = "tokenizer.json"
DEFAULT_ENCODING = "cl100k_base"
SAME_VOCABULARY = {"o200k_harmony": "o200k_base"}
"""Encodings that differ from a shipped one only in special tokens, which count as plain text here."""


@dataclass(frozen=True, slots=True)
class TiktokenCounter:
    """Token counter with a shipped tiktoken encoding, which is loaded at the first count."""

    encoding: str = DEFAULT_ENCODING

    @property
    def name(self) -> str:
        return f"tiktoken:{self.encoding}"

    def count(self, text: str) -> int:
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


@dataclass(frozen=True, slots=True)
class TransformersCounter:
    """Token counter with a model's own tokenizer from a local file."""

    name: str
    tokenizer: "Tokenizer"

    def count(self, text: str) -> int:
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
    """Return a counter with a `tokenizer.json`, set to count whole texts and special tokens in them as plain text.

    `rest` is the file, a folder that contains one, or the name of a model on the Hugging Face Hub whose file is in the
    local cache. Nothing is downloaded. Raises SettingInvalid if there is none.
    """
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415  # the package is optional

        path = _find_tokenizer(rest)
    except ImportError as error:
        raise SettingInvalid(
            f"token counter {name!r} needs packages that are not installed: pip install 'throughline[transformers]'"
        ) from error
    refusal = SettingInvalid(f"token counter {name}: {path.name} holds no tokenizer")
    with raised_as(lambda _: refusal):
        tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return TransformersCounter(name, tokenizer)


def _find_tokenizer(name: str) -> Path:
    path = Path(name).expanduser()
    found = path / TOKENIZER_FILE if path.is_dir() else path
    if found.is_file():
        return found
    cached = _cached_tokenizer(name)
    if cached is None:
        raise SettingInvalid(
            f"token counter transformers:{name}: there is no such file, and no {TOKENIZER_FILE} of that model in the "
            f"local Hugging Face cache; fetch it once (hf download {name} {TOKENIZER_FILE}) or name the path of a "
            f"{TOKENIZER_FILE}"
        )
    return cached


def _cached_tokenizer(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415  # the package is optional
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415  # the same

    try:
        found = try_to_load_from_cache(name, TOKENIZER_FILE)
    except HFValidationError:  # a path instead of a model's name
        return None
    return Path(found) if isinstance(found, str) else None
