"""JSON responses, and errors as RFC 9457 problem documents; `problem_kinds.yaml` has the status and title of each code.

`type` is `/problems/<code>`, a stable reference relative to the service. Clients compare it and need not fetch it. The
service answers it with an explanation (`api/pages.py`).
"""

import json
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic_core import PydanticSerializationError, to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import (
    BehindWaitingTurn,
    DatabaseUnavailable,
    DatabaseUnusable,
    InvalidInput,
    QueueFull,
    SessionBusy,
    SummaryInProgress,
    TemporaryError,
    ThroughlineError,
)
from throughline.domain.message import clean_text
from throughline.execution.error_boundary import ErrorBoundary
from throughline.http.route_errors import PROBLEM_KINDS, FieldError, InvalidRequest, TooManyConnections

LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
"""Characters that are legal inside JSON strings, but that many readers of event streams treat as line ends."""


def json_bytes(value: object) -> bytes:
    """Return `value` (JSON types only) as JSON in UTF-8. Text that UTF-8 cannot encode is escaped instead."""
    try:
        return to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeEncodeError):
        return json.dumps(value, ensure_ascii=True).encode()


def json_line(value: object) -> bytes:
    """Return `value` as JSON in UTF-8 without anything that a reader may take for the end of a line."""
    data = json_bytes(value)
    for raw, escaped in LINE_ENDS:
        data = data.replace(raw, escaped)
    return data


class JsonResponse(Response):
    """JSON response for a value of JSON types, as the shapes of `throughline.wire` render it."""

    media_type = "application/json"

    def render(self, content: JsonValue) -> bytes:
        return json_bytes(content)


MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 2
MAX_FIELDS = 20
MAX_FIELD_LENGTH = 80

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
            behind = {"waiting_run_id": error.waiting_run_id} if isinstance(error, BehindWaitingTurn) else {}
            return {"run_id": run_id, **behind}
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


def route_class_with_error_format(to_response: Callable[[Request, ThroughlineError], Response]) -> type[APIRoute]:
    """Return a class of routes that answers errors with `to_response` instead of problem documents."""

    class RouteWithErrors(APIRoute):
        def get_route_handler(
            self,
        ) -> Callable[[Request], Coroutine[Any, Any, Response]]:  # Any: as the framework declares it
            handler = super().get_route_handler()

            async def handle(request: Request) -> Response:
                try:
                    return await handler(request)
                except RequestValidationError as error:
                    return to_response(request, InvalidRequest(field_errors(error.errors())))
                except ThroughlineError as error:
                    return to_response(request, error)

            return handle

    return RouteWithErrors


@dataclass(frozen=True, slots=True)
class HttpErrorWords:
    """Code, text and headers of an error that the framework raises itself."""

    code: str
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)


def http_error_words(request: Request, error: HTTPException) -> HttpErrorWords:
    """Return what an error of the framework says: an unknown route or method, or a request that cannot be read."""
    if error.status_code == HTTPStatus.NOT_FOUND:
        return HttpErrorWords("route_not_found", "There is no such route. /openapi.json lists the routes.")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_allowed_methods(request))
        detail = f"{request.method} is not allowed on this route; allowed: {allowed}."
        return HttpErrorWords("method_not_allowed", detail, {"Allow": allowed})
    return HttpErrorWords("malformed_body", "The request could not be read.")


def http_error_problem(request: Request, error: HTTPException) -> Response:
    """Return the problem document for an error that the framework raises itself."""
    words = http_error_words(request, error)
    return problem(words.code, words.detail, headers=words.headers)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return http_error_problem(request, error)


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
