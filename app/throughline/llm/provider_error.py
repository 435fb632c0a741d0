"""Provider errors in one common shape, read from the parsed body and the status, never from `str(error)`.

Three SDKs, their streams and LangChain's wrappers put the same information in different places. No SDK is imported
here: providers are optional, and a gateway behind one SDK may use another's format. What a provider says is cleaned of
keys and of the user's words before it is logged or shown.
"""

import json
import math
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from itertools import pairwise
from unicodedata import category

from pydantic import SecretStr

from throughline.domain.errors import ThroughlineError
from throughline.execution.error_boundary import Returned, outcome_of


@contextmanager
def raised_as(translate: Callable[[Exception], ThroughlineError]) -> Generator[None]:
    """Replace an exception of a `with` block by what `translate` returns; a ThroughlineError is not replaced."""
    try:
        yield
    except ThroughlineError:
        raise
    except Exception as error:
        raise translate(error) from error


_DELAY = re.compile(r"^(\d+(?:\.\d+)?)s$")


def read_retry_after(headers: Mapping[str, str], body: Mapping[str, object]) -> float | None:
    """Return the seconds to wait, None if the error states no usable time.

    A date is compared with the response's own `Date` header, because the provider's clock counts.
    """
    for candidate in (_milliseconds(headers), _seconds(headers), _date(headers), _google_delay(body)):
        if candidate is not None and math.isfinite(candidate) and candidate >= 0:
            return candidate
    return None


def _milliseconds(headers: Mapping[str, str]) -> float | None:
    value = _number(headers.get("retry-after-ms"))
    return None if value is None else value / 1000


def _seconds(headers: Mapping[str, str]) -> float | None:
    return _number(headers.get("retry-after"))


def _date(headers: Mapping[str, str]) -> float | None:
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
        now = parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None


def _google_delay(body: Mapping[str, object]) -> float | None:
    """Return the delay in Google's error details: `[{"@type": "…RetryInfo", "retryDelay": "13s"}]`."""
    details = body.get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        match = _DELAY.match(delay) if isinstance(delay, str) else None
        if match:
            return float(match.group(1))
    return None


def _number(value: str | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return None


MAX_MESSAGE = 2000
CONNECT_ERROR = "ConnectError"
"""Name of the class with which httpx and its twins report a connection that could not be opened."""
_OK = 200
_FIRST_ERROR = 400
_LAST_STATUS = 599

# A stream that fails after `200 OK` identifies its error only by type or code.
_TYPES = {
    400: "invalid_request_error badrequesterror exceed_context_size_error context_length_exceeded",
    401: "authentication_error invalid_api_key",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "insufficient_quota rate_limit_error rate_limit_exceeded",
    500: "api_error server_error internal_server_error",
    504: "timeout_error",
    529: "overloaded_error",
}
STATUS_OF_TYPE = {name: status for status, names in _TYPES.items() for name in names.split()}

_ECHO = re.compile(r"""(?<!\w)'[^']{16,}'(?!\w)|(?<!\w)"[^"]{16,}"(?!\w)|\binput_value=.*|\bReceived:.*""", re.DOTALL)
"""Parts of an error message that may repeat the user's text and must not be taken for the provider's words."""


@dataclass(frozen=True, slots=True)
class ProviderFailure:
    """A provider error in one shape. Missing strings are empty and missing numbers None.

    `status` is the HTTP status, or the status that the error's type stands for if a stream failed after `200 OK`; then
    `in_stream` is set. `kinds` are the class names of the error and its causes. `body` is the innermost error object.
    `has_echo`: a part of `message` was removed because it may repeat the user's text. `connection` is what the HTTP
    client says of a connection that could not be opened, '' if it was opened.
    """

    status: int | None
    code: str
    type: str
    message: str
    has_echo: bool
    body: Mapping[str, object]
    in_stream: bool
    retry_after_seconds: float | None
    kinds: frozenset[str]
    connection: str = ""


def read_failure(error: BaseException) -> ProviderFailure:
    """Return the error in one shape.

    The values come from the first exception, of the error and its causes, that has a status or a body.
    """
    chain = tuple(error_chain(error))
    carrier = next(filter(_says_something, chain), error)
    raw = _body_of(carrier)
    body = _error_object(raw)
    status = _status_of(carrier)
    said = _message(body, raw)
    message = _ECHO.sub("", said)
    kind, code = _text(body.get("type")), _text(body.get("code"))
    in_stream = status is None or status == _OK
    return ProviderFailure(
        status=_status_in_stream(kind, code) if in_stream else status,
        code=code,
        type=kind or _text(body.get("status")),
        message=message[:MAX_MESSAGE],
        has_echo=message != said,
        body=body,
        in_stream=in_stream and raw is not None,
        retry_after_seconds=read_retry_after(_headers_of(carrier), body),
        kinds=frozenset(cls.__name__ for link in chain for cls in type(link).__mro__),
        connection=_connection_text(chain),
    )


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _connection_text(chain: Sequence[BaseException]) -> str:
    """Return the texts of the HTTP client and the sockets, '' if the connection was opened."""
    if not any(type(link).__name__ == CONNECT_ERROR for link in chain):
        return ""
    return " ".join(str(link) for link in chain if isinstance(link, OSError) or type(link).__name__ == CONNECT_ERROR)


def _says_something(error: BaseException) -> bool:
    return _status_of(error) is not None or _body_of(error) is not None


def _status_of(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        return _amazon_status(response)
    for holder, name in ((error, "status_code"), (error, "code"), (response, "status_code")):
        value = getattr(holder, name, None)
        if isinstance(value, int) and _OK <= value <= _LAST_STATUS:
            return value
    return None


def _body_of(error: BaseException) -> object | None:
    """Return the parsed body of the error; '' for an empty body, None without one.

    It is `body` in the OpenAI, Anthropic and Cohere SDKs, `details` in Google's, `error` in Ollama's, `message` in
    Google's older one, a part of the response in Amazon's, and the response's text for packages that raise httpx's own
    error (Mistral).
    """
    bodies = [value for value in _held_by(error) if isinstance(value, Mapping | list | str)]
    said = next(filter(None, bodies), None)
    if said is not None or "" in bodies:
        return said or ""
    message = getattr(error, "message", None) if _status_of(error) is not None else None
    return message if isinstance(message, str) else None


def _held_by(error: BaseException) -> Iterator[object]:
    for name in ("body", "details", "error"):
        yield getattr(error, name, None)
    response = getattr(error, "response", None)
    yield _amazon_error(response)
    yield _text_of_response(response)


def _amazon_status(response: Mapping[str, object]) -> int | None:
    metadata = response.get("ResponseMetadata")
    status = metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None
    return status if isinstance(status, int) else None


def _amazon_error(response: object) -> Mapping[str, object] | None:
    """Return the error object `{"Error": {"Code": …, "Message": …}}` that botocore keeps, with lower-case names."""
    said = response.get("Error") if isinstance(response, Mapping) else None
    return {str(name).lower(): value for name, value in said.items()} if isinstance(said, Mapping) else None


def _text_of_response(response: object) -> str | None:
    """Return the response's text; None also if reading it raises (a body not yet read, an unusable charset)."""
    match outcome_of(lambda: getattr(response, "text", None)):
        case Returned(str() as text):
            return text
        case _:
            return None


def _headers_of(error: BaseException) -> Mapping[str, str]:
    headers = getattr(getattr(error, "response", None), "headers", None)
    return headers if isinstance(headers, Mapping) else {}


def _error_object(raw: object) -> Mapping[str, object]:
    """Unwrap `{"error": {…}}`, one-element lists, and a JSON text inside `message` (gateways nest them)."""
    value = _parsed(raw)
    for _ in range(3):
        if isinstance(value, list) and value:
            value = value[0]
        if not isinstance(value, Mapping):
            return {}
        inner = _parsed(value.get("error"))
        if not isinstance(inner, Mapping):
            return _unwrap_message(value)
        value = inner
    return value if isinstance(value, Mapping) else {}


def _unwrap_message(value: Mapping[str, object]) -> Mapping[str, object]:
    message = value.get("message")
    inner = _parsed(message) if isinstance(message, str) and message.lstrip().startswith("{") else None
    if not isinstance(inner, Mapping):
        return value
    nested = inner.get("error", inner)
    return {**value, **nested} if isinstance(nested, Mapping) else value


def _parsed(value: object) -> object:
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        parsed: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed


def _message(body: Mapping[str, object], raw: object) -> str:
    for name in ("message", "error", "detail", "msg"):
        value = body.get(name)
        if isinstance(value, str) and value:
            return value
    return raw if isinstance(raw, str) and not body and "<html" not in raw.lower() else ""


def _status_in_stream(kind: str, code: str) -> int | None:
    if code.isdigit() and _FIRST_ERROR <= int(code) <= _LAST_STATUS:
        return int(code)
    return STATUS_OF_TYPE.get(code.lower(), STATUS_OF_TYPE.get(kind.lower()))


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int) else ""


# Cleaning of a provider's message, for the log and for operators. Providers repeat parts of the request and of the key
# in their messages.

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
