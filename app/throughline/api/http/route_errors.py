"""Errors that a route can answer with, by the parts of a request that raise them: the table behind the document.

`api/openapi/document.py` derives most of a route's errors from its parameters, its body and its authentication. A route
names only the errors of its own work.
"""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TypeAlias

from throughline.api.http.problem_kinds.all_kinds import PROBLEM_KINDS
from throughline.api.http.problem_kinds.of_conflicts import RUN_CANCELLED
from throughline.api.http.request_errors import (
    BodyMemoryExhausted,
    BodyTooLarge,
    BodyTooSlow,
    HeadTooLarge,
    HeadTooSlow,
    InvalidRequest,
    MalformedBody,
    MalformedRequest,
    OriginRefused,
    ServiceStopping,
    TooManyConnections,
    UnsupportedMediaType,
)
from throughline.domain.errors import (
    AgentInvalid,
    DailyBudgetReserved,
    DailyBudgetSpent,
    DatabaseUnavailable,
    DatabaseUnusable,
    IdempotencyKeyReused,
    InvalidInput,
    LeaseLost,
    ModelRejected,
    ModelUnavailable,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NoWorkerAvailable,
    PromptCannotFit,
    RunAbandoned,
    SettingInvalid,
    ThroughlineError,
    TurnTimeout,
)

Codes: TypeAlias = tuple[str, ...]


def codes(*errors: type[ThroughlineError]) -> Codes:
    """Return the stable code of each class of errors, in their order."""
    return tuple(error.code for error in errors)


def _with_kinds(error: type[ThroughlineError]) -> Iterator[type[ThroughlineError]]:
    yield error
    for kind in error.__subclasses__():
        yield from _with_kinds(kind)


ANY_ROUTE = codes(ThroughlineError)
CONNECTION = codes(MalformedRequest, HeadTooSlow, HeadTooLarge, TooManyConnections)
"""Errors of the server, before any route is known."""

AUTHENTICATION = codes(NotAuthenticated, NotAllowed, OriginRefused, InvalidInput, DatabaseUnavailable, DatabaseUnusable)
PATH = codes(NotFound)
PARAMETERS = codes(InvalidInput)
BODY = codes(MalformedBody, BodyTooSlow, BodyTooLarge, UnsupportedMediaType, InvalidRequest, BodyMemoryExhausted)
IDEMPOTENCY = codes(IdempotencyKeyReused)
AGENT = codes(AgentInvalid, PromptCannotFit, SettingInvalid)
"""Errors of routes that prepare a prompt of the session's agent."""

FOLLOWING = codes(NoWorkerAvailable, ServiceStopping)
TURN = (
    *codes(*_with_kinds(ModelRejected), *_with_kinds(ModelUnavailable)),
    *codes(DailyBudgetReserved, DailyBudgetSpent, LeaseLost, RunAbandoned, TurnTimeout),
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
