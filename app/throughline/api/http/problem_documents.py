"""Conversion of errors to RFC 9457 problem documents; the only module that maps error codes to HTTP statuses.

`type` is `/problems/<code>`, a stable reference relative to the service. Clients compare it and need not fetch it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from throughline.api.http.request_errors import FieldError, InvalidRequest, TooManyConnections
from throughline.api.http.responses import json_bytes
from throughline.domain.errors import (
    DatabaseUnavailable,
    DatabaseUnusable,
    InvalidInput,
    QueueFull,
    SessionBusy,
    SummaryInProgress,
    TemporaryError,
    ThroughlineError,
)
from throughline.domain.json_types import JsonValue
from throughline.domain.text import clean_text
from throughline.execution.error_boundary import ErrorBoundary

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 2
MAX_FIELDS = 20
MAX_FIELD_LENGTH = 80
RUN_CANCELLED = "run_cancelled"

log = structlog.get_logger(__name__)

TIME_WORDS = "Must be a time with its offset: 2026-03-14T00:00:00Z."
PYDANTIC_TEXTS: Mapping[str, str] = {
    "bool_parsing": "Must be true or false.",
    "bool_type": "Must be true or false.",
    "datetime_from_date_parsing": TIME_WORDS,
    "datetime_parsing": TIME_WORDS,
    "dict_type": "Must be a JSON object.",
    "extra_forbidden": "This field does not exist. Remove it.",
    "greater_than_equal": "Must be {ge} or more.",
    "int_parsing": "Must be a whole number.",
    "int_parsing_size": "Must be a smaller whole number.",
    "less_than_equal": "Must be {le} or less.",
    "list_type": "Must be a list.",
    "literal_error": "Must be {expected}.",
    "missing": "This field is required.",
    "model_attributes_type": "Must be a JSON object.",
    "model_type": "Must be a JSON object.",
    "recursion_loop": "Is nested too deeply.",
    "string_pattern_mismatch": "Has the wrong form; see /openapi.json.",
    "string_too_long": "Must have {max_length} characters or fewer.",
    "string_too_short": "Must have {min_length} characters or more.",
    "string_type": "Must be text.",
    "timezone_aware": TIME_WORDS,
    "too_long": "Must have {max_length} items or fewer.",
    "too_short": "Must have {min_length} items or more.",
    "union_tag_invalid": "Its {discriminator} must be one of {expected_tags}.",
    "union_tag_not_found": "Must be a JSON object with a {discriminator}.",
}
"""Error texts for pydantic's error types, filled with the limits of the check and never with the sent value."""


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """HTTP status of an error code, and the title that all problems with this code share."""

    status: int
    title: str


PROBLEM_KINDS: Mapping[str, ProblemKind] = {
    "malformed_body": ProblemKind(400, "The body is not JSON"),
    "malformed_request": ProblemKind(400, "The request is not HTTP"),
    "not_authenticated": ProblemKind(401, "A valid key is required"),
    "not_allowed": ProblemKind(403, "The key lacks the required scope"),
    "origin_refused": ProblemKind(403, "Requests of this origin are not served"),
    "not_found": ProblemKind(404, "Not found"),
    "model_not_found": ProblemKind(404, "No such model"),
    "previous_response_not_found": ProblemKind(404, "No such response to continue"),
    "route_not_found": ProblemKind(404, "No such route"),
    "method_not_allowed": ProblemKind(405, "Method not allowed"),
    "body_too_slow": ProblemKind(408, "The body did not arrive in time"),
    "head_too_slow": ProblemKind(408, "The request did not arrive in time"),
    "idempotency_key_reused": ProblemKind(409, "The idempotency key was used for another request"),
    "external_id_taken": ProblemKind(409, "Another session has this external id"),
    "session_busy": ProblemKind(409, "A turn of this session is running"),
    "run_not_waiting": ProblemKind(409, "The run does not wait for this"),
    "approval_required": ProblemKind(409, "The turn needs an approval"),
    "conversation_branched": ProblemKind(409, "The session's messages are others"),
    "summary_conflict": ProblemKind(409, "The summary was changed meanwhile"),
    "summary_in_progress": ProblemKind(409, "A summary of this session is being written"),
    RUN_CANCELLED: ProblemKind(409, "The run was cancelled"),
    "body_too_large": ProblemKind(413, "The body is too large"),
    "unsupported_media_type": ProblemKind(415, "The body must be plain JSON"),
    "invalid_input": ProblemKind(422, "The request is not valid"),
    "model_refused": ProblemKind(422, "The model declined this content"),
    "queue_full": ProblemKind(429, "Too many messages are waiting in this session"),
    "owner_queue_full": ProblemKind(429, "Too many of your messages are waiting"),
    "daily_budget_spent": ProblemKind(429, "The budget of the day is spent"),
    "owner_summaries_taken": ProblemKind(429, "Too many of your summaries are being written"),
    "head_too_large": ProblemKind(431, "The request's headers are too large"),
    "internal_error": ProblemKind(500, "An unexpected error occurred"),
    "lease_lost": ProblemKind(500, "The run moved to another process"),
    "run_abandoned": ProblemKind(500, "The run could not be finished"),
    "setting_invalid": ProblemKind(500, "The service is not configured for this"),
    "agent_invalid": ProblemKind(500, "The agent cannot be used"),
    "prompt_cannot_fit": ProblemKind(500, "The agent leaves no room for a conversation"),
    "model_rejected": ProblemKind(502, "The model provider refused the request"),
    "model_authentication_failed": ProblemKind(502, "The model provider does not accept the service's key"),
    "model_quota_exhausted": ProblemKind(502, "The model provider account has no quota left"),
    "model_invalid_request": ProblemKind(502, "The model provider says the request is invalid"),
    "context_overflow": ProblemKind(502, "The prompt is longer than the model's window"),
    "answer_too_long": ProblemKind(502, "The model's answer was too long"),
    "answer_not_in_format": ProblemKind(502, "The model did not answer in the response format"),
    "answer_incomplete": ProblemKind(502, "The model's answer was incomplete"),
    "database_unusable": ProblemKind(503, "The database cannot be used"),
    "database_unavailable": ProblemKind(503, "The database does not answer"),
    "claiming_broke": ProblemKind(500, "The process runs no more turns"),
    "no_worker_available": ProblemKind(503, "No worker started the run"),
    "turns_taken": ProblemKind(503, "All turn slots are in use"),
    "service_stopping": ProblemKind(503, "The service is stopping"),
    "bodies_held": ProblemKind(503, "Too many large requests are in progress"),
    "too_many_connections": ProblemKind(503, "The service has too many connections"),
    "answer_restarted": ProblemKind(503, "The answer was begun again"),
    "model_unavailable": ProblemKind(503, "The model provider is not available"),
    "model_rate_limited": ProblemKind(503, "The model provider limits the rate of requests"),
    "model_timeout": ProblemKind(504, "The model did not answer in time"),
    "turn_timeout": ProblemKind(504, "The turn took too long"),
}


def problem(
    code: str, detail: str, *, more: Mapping[str, JsonValue] | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the problem document for `code`; `more` adds members to it.

    An unknown code gets the status and title of an internal error, and keeps its own `type`.
    """
    kind = PROBLEM_KINDS.get(code, PROBLEM_KINDS["internal_error"])
    body = {"type": f"/problems/{code}", "title": kind.title, "status": kind.status, "detail": detail, **(more or {})}
    added = {"Cache-Control": "no-store", **(headers or {})}
    if kind.status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
        added.setdefault("Retry-After", str(RETRY_SECONDS))
    if kind.status == HTTPStatus.REQUEST_TIMEOUT:
        added["Connection"] = "close"  # the server does not wait for the rest of the request
    return Response(json_bytes(body), kind.status, added, MEDIA_TYPE)


def error_problem(error: ThroughlineError, *, run_id: str = "", route: str = "") -> Response:
    """Return the problem document for an error of the service.

    `run_id` names a run that continues although the request failed. Errors with status 503 are logged, except
    TooManyConnections: clients could fill the log by opening connections.
    """
    if PROBLEM_KINDS.get(error.code, PROBLEM_KINDS["internal_error"]).status == HTTPStatus.SERVICE_UNAVAILABLE:
        _log_refusal(error, run_id, route)
    more = {**_members(error), **({"run_id": run_id} if run_id else {})}
    return problem(error.code, error.detail, more=more, headers=headers_of(error))


def _log_refusal(error: ThroughlineError, run_id: str, route: str) -> None:
    """Log why a request was refused for now.

    A database error is logged with its text, which is the service's own. Other errors are logged with their code.
    """
    if isinstance(error, TooManyConnections):
        return
    cause = error.detail if isinstance(error, DatabaseUnavailable | DatabaseUnusable) else error.code
    log.warning("request refused temporarily", code=error.code, cause=cause, run_id=run_id or None, route=route or None)


def field_errors(found: Sequence[Mapping[str, object]]) -> tuple[FieldError, ...]:
    """Return the first MAX_FIELDS of pydantic's errors as FieldError values: field and message, never the input."""
    return tuple(FieldError(_place(error.get("loc")), _message(error)) for error in found[:MAX_FIELDS])


def add_error_handlers(app: FastAPI) -> None:
    """Register handlers that answer the service's and the framework's own errors with problem documents.

    All other errors are answered by the middleware `UnexpectedErrors`.
    """
    app.add_exception_handler(ThroughlineError, _on_own_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameters)
    app.add_exception_handler(HTTPException, _on_http_error)


def _members(error: ThroughlineError) -> dict[str, JsonValue]:
    match error:
        case InvalidRequest(errors=errors):
            return {"errors": [{"field": item.field, "detail": item.detail} for item in errors]}
        case InvalidInput(field=field, detail=detail):
            return {"errors": [{"field": field, "detail": detail}]}
        case SessionBusy(run_id=run_id):
            return {"run_id": run_id}
        case SummaryInProgress(summary_request_id=request_id):
            return {"summary_request_id": request_id}
        case QueueFull(cap=cap, limit=limit):
            return {"cap": cap, "limit": limit}
        case _:
            return {}


def headers_of(error: ThroughlineError) -> dict[str, str]:
    """Return the headers that tell a client when to try again, or how to authenticate."""
    if isinstance(error, TemporaryError):
        seconds = RETRY_SECONDS if error.delay_seconds is None else error.delay_seconds
        return {"Retry-After": str(max(1, math.ceil(seconds)))}
    if error.code == "not_authenticated":
        return {"WWW-Authenticate": 'Bearer realm="throughline"'}
    if error.code == "not_allowed":
        return {"WWW-Authenticate": 'Bearer realm="throughline", error="insufficient_scope"'}
    return {}


async def _on_own_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ThroughlineError)
    path = getattr(request.scope.get("route"), "path", "")
    return error_problem(error, route=f"{request.method} {path}")


async def _on_invalid_parameters(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_problem(InvalidRequest(field_errors(error.errors())))


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Answer the errors that the framework raises itself: unknown routes and methods."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem("route_not_found", "There is no such route. /openapi.json lists the routes.")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_allowed_methods(request))
        detail = f"{request.method} is not allowed on this route; allowed: {allowed}."
        return problem("method_not_allowed", detail, headers={"Allow": allowed})
    return problem("malformed_body", "The request could not be read.")


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods that the request's path accepts.

    The framework's own list covers only the first route that matches the path.
    """
    path = request.url.path
    matching = [route for route in iter_route_contexts(request.app.routes) if route.path_regex.match(path)]
    return sorted({method for route in matching for method in route.methods or ()})


def _place(location: object) -> str:
    """Return the dotted field name for a pydantic error location.

    The name is cut to MAX_FIELD_LENGTH, because clients may invent names. Union tags in parentheses are left out.
    """
    parts = [str(part) for part in location] if isinstance(location, (tuple, list)) else []
    shown = [part for part in parts if part not in {"body", "query", "header"} and not part.startswith("(")]
    return clean_text(".".join(shown))[:MAX_FIELD_LENGTH]


def _message(error: Mapping[str, object]) -> str:
    kind, context = str(error.get("type")), error.get("ctx")
    if kind in PYDANTIC_TEXTS:
        return PYDANTIC_TEXTS[kind].format_map(context if isinstance(context, dict) else {})
    return (
        str(error.get("msg", "")).removeprefix("Value error, ").replace("Input should be", "Must be").rstrip(".") + "."
    )


class UnexpectedErrors:
    """Middleware that answers unexpected errors with a 500 problem document.

    If the response has already begun, it is cut instead.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def note_start(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        boundary = ErrorBoundary(log.error, task="request", lets_through=(ClientDisconnect,), method=scope["method"])
        try:
            with boundary:
                await self._app(scope, receive, note_start)
        except ClientDisconnect:
            log.info("client disconnected while sending a request body")
        if boundary.error is not None and not has_begun:
            detail = "An unexpected error occurred. Nothing stored is lost; try again."
            await problem(ThroughlineError.code, detail)(scope, receive, send)
