"""Errors that a route can answer with, by code and by the parts of a request that raise them: behind the document.

`api/document.py` derives most of a route's errors from its parameters, its body and its authentication. A route
names only the errors of its own work.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias

import yaml

from throughline.domain import errors
from throughline.domain.errors import PermanentError, TemporaryError, ThroughlineError


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """HTTP status, title, cause and remedy of an error code, as `problem_kinds.yaml` has them."""

    status: int
    title: str
    cause: str
    remedy: str
    page: str = ""


_FILE = Path(__file__).with_name("problem_kinds.yaml")
KINDS_BY_SUBJECT: Mapping[str, Mapping[str, ProblemKind]] = {
    subject: {code: ProblemKind(**kind) for code, kind in kinds.items()}
    for subject, kinds in yaml.safe_load(_FILE.read_text(encoding="utf-8")).items()
}
PROBLEM_KINDS: Mapping[str, ProblemKind] = {
    code: kind for kinds in KINDS_BY_SUBJECT.values() for code, kind in kinds.items()
}
RUN_CANCELLED = "run_cancelled"

# Errors that the HTTP interface raises itself, in addition to those of `domain/errors.py`. `problem_documents.py` maps
# each of them to its HTTP status.


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong value in a request: the dotted name of its field and the reason, never the value itself."""

    field: str
    detail: str


class InvalidRequest(PermanentError):
    """Error for a well-formed request with unacceptable values; `errors` names each of them."""

    code = "invalid_input"

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        """Store `errors`; the first one gives the error its text."""
        first = errors[0]
        super().__init__(f"{first.field}: {first.detail}" if first.field else first.detail)
        self.errors = errors


class MalformedBody(PermanentError):
    """Error for a body that cannot be parsed as JSON in UTF-8."""

    code = "malformed_body"


class BodyTooLarge(PermanentError):
    """Error for a body larger than this service accepts."""

    code = "body_too_large"


class BodyMemoryExhausted(TemporaryError):
    """Error for a body that must wait: the process, or the body's owner, holds as many body bytes as allowed."""

    code = "bodies_held"


class BodyTooSlow(PermanentError):
    """Error for a body that did not arrive in time."""

    code = "body_too_slow"


class HeadTooSlow(PermanentError):
    """Error for a request line and headers that did not arrive in time."""

    code = "head_too_slow"


class HeadTooLarge(PermanentError):
    """Error for a request line and headers, or trailers, that are longer than this service accepts."""

    code = "head_too_large"


class TooManyConnections(TemporaryError):
    """Error for a connection beyond the largest number that the process accepts."""

    code = "too_many_connections"


class MalformedRequest(PermanentError):
    """Error for data on a connection that is not HTTP."""

    code = "malformed_request"


class UnsupportedMediaType(PermanentError):
    """Error for a body that is not declared as plain JSON: another type, another character set, or compressed."""

    code = "unsupported_media_type"


class OriginRefused(PermanentError):
    """Error for a request in local mode whose Host, Origin or proxy header names another machine.

    It is also raised for a change that a page of another port of this machine requests.
    """

    code = "origin_refused"


class ServiceStopping(TemporaryError):
    """Error for a request that still waits when the process stops. Its run continues in another process.

    It is also the error for a WebSocket that would begin while the process stops.
    """

    code = "service_stopping"


class StreamAborted(Exception):
    """Signal to cut an event stream before its last event, so that its reader reconnects."""


Codes: TypeAlias = tuple[str, ...]


def codes(*kinds: type[ThroughlineError]) -> Codes:
    """Return the stable codes of the classes of errors, in their order, each once."""
    return tuple(dict.fromkeys(kind.code for kind in kinds))


def _with_kinds(error: type[ThroughlineError]) -> Iterator[type[ThroughlineError]]:
    yield error
    for kind in error.__subclasses__():
        yield from _with_kinds(kind)


ANY_ROUTE = codes(ThroughlineError)
CONNECTION = codes(MalformedRequest, HeadTooSlow, HeadTooLarge, TooManyConnections)
"""Errors of the server, before any route is known."""

AUTHENTICATION = codes(
    errors.NotAuthenticated,
    errors.NotAllowed,
    OriginRefused,
    errors.InvalidInput,
    errors.DatabaseUnavailable,
    errors.DatabaseUnusable,
)
PATH = codes(errors.NotFound)
PARAMETERS = codes(errors.InvalidInput)
BODY = codes(MalformedBody, BodyTooSlow, BodyTooLarge, UnsupportedMediaType, InvalidRequest, BodyMemoryExhausted)
IDEMPOTENCY = codes(errors.IdempotencyKeyReused)
AGENT = codes(errors.AgentInvalid, errors.PromptCannotFit, errors.SettingInvalid)
"""Errors of routes that prepare a prompt of the session's agent."""

FOLLOWING = codes(errors.NoWorkerAvailable, ServiceStopping)
TURN = (
    *codes(*_with_kinds(errors.ModelRejected), *_with_kinds(errors.ModelUnavailable)),
    *codes(
        errors.DailyBudgetReserved, errors.DailyBudgetSpent, errors.LeaseLost, errors.RunAbandoned, errors.TurnTimeout
    ),
    *AGENT,
    RUN_CANCELLED,
)
"""Errors with which a turn can end."""

HEADERS: Mapping[int, tuple[str, ...]] = {
    HTTPStatus.UNAUTHORIZED: ("WWW-Authenticate",),
    HTTPStatus.FORBIDDEN: ("WWW-Authenticate",),
    HTTPStatus.TOO_MANY_REQUESTS: ("Retry-After",),
    HTTPStatus.SERVICE_UNAVAILABLE: ("Retry-After",),
}
"""The response headers of problems, by their status."""


def by_status(raised: Sequence[str]) -> dict[int, Codes]:
    """Return the codes by their HTTP status, both in the order of the table of problems."""
    found: dict[int, Codes] = {}
    for code, kind in PROBLEM_KINDS.items():
        if code in raised:
            found[kind.status] = (*found.get(kind.status, ()), code)
    return dict(sorted(found.items()))


def describe_codes(found: Sequence[str]) -> str:
    """Return one line of a list for each code: the code and its title."""
    return "\n".join(f"- `{code}`: {PROBLEM_KINDS[code].title}" for code in found)
