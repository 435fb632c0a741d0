"""Provider errors in one common shape, read from the parsed body and the status, never from `str(error)`.

Three SDKs, their streams and LangChain's wrappers put the same information in different places. No SDK is imported
here: providers are optional, and a gateway behind one SDK may use another's format.
"""

import json
import math
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from throughline.domain.errors import SettingInvalid, ThroughlineError
from throughline.execution.error_boundary import Returned, outcome_of
from throughline.llm.providers import ModelName, Provider

_WORDS = (("specify a region", "REGION"), ("default credentials", "APPLICATION_CREDENTIALS"))
"""Words of packages that name no variable, each with a part of the names of the variables that are missing."""


@contextmanager
def raised_as(translate: Callable[[Exception], ThroughlineError]) -> Generator[None]:
    """Replace an exception of a `with` block by what `translate` returns; a ThroughlineError is not replaced."""
    try:
        yield
    except ThroughlineError:
        raise
    except Exception as error:
        raise translate(error) from error


def as_setting(name: ModelName, advice: str, error: Exception) -> SettingInvalid:
    """Return the error for a model that its package cannot create, which is a mistake in the operator's settings."""
    provider, text = name.provider, str(error)
    said = text.lower()
    if isinstance(error, ImportError):
        return SettingInvalid(
            f"model {name.full!r} needs a package that is not installed: pip install {provider.install}"
        )
    if named := _missing_variables(provider, text):
        advice = f", or {advice}" if advice else ""
        return SettingInvalid(f"model {name.full!r} lacks what its provider needs: set {' or '.join(named)}{advice}")
    if provider.key_variable and ("key" in said or "credential" in said):
        advice = f", or {advice}" if advice else ""
        return SettingInvalid(f"model {name.full!r} has no key: set {provider.key_variable}{advice}")
    read = ", ".join(sorted(provider.variables))
    variables = f", and the variables that its package reads: {read}" if read else ""
    return SettingInvalid(
        f"model {name.full!r} cannot be set up ({type(error).__name__}): check its name and options{variables}"
    )


def _missing_variables(provider: Provider, text: str) -> list[str]:
    """Return the provider's variables that the package's error names, or that a known phrase in it means."""
    parts = [part for words, part in _WORDS if words in text]
    return sorted(name for name in provider.variables if name in text or any(part in name for part in parts))


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
STATUS_OF_TYPE: Mapping[str, int] = {
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "exceed_context_size_error": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 429,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

_ECHO = re.compile(r"""(?<!\w)'[^']{16,}'(?!\w)|(?<!\w)"[^"]{16,}"(?!\w)|\binput_value=.*|\bReceived:.*""", re.DOTALL)
"""Parts of an error message that may repeat the user's text and must not be taken for the provider's words."""


@dataclass(frozen=True, slots=True)
class Failure:
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


def read_failure(error: BaseException) -> Failure:
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
    return Failure(
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
