"""Errors as `useChat` shows them: it takes the whole text of an answer as the error's message."""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute

from throughline.domain.errors import ThroughlineError
from throughline.http.problem_documents import headers_of, invalid_request
from throughline.http.route_errors import PROBLEM_KINDS


class AiSdkRoute(APIRoute):
    """Route whose errors are answered with their sentence as plain text instead of a problem document."""

    def get_route_handler(
        self,
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:  # Any: as the framework declares it
        """Return the handler of the route, with its errors converted."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                return _as_text(invalid_request(error))
            except ThroughlineError as error:
                return _as_text(error)

        return handle


def _as_text(error: ThroughlineError) -> Response:
    kind = PROBLEM_KINDS.get(error.code, PROBLEM_KINDS["internal_error"])
    retry = (
        {"Retry-After": "2"} if kind.status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS} else {}
    )
    headers = {"Cache-Control": "no-store", **retry, **headers_of(error)}
    return PlainTextResponse(error.detail, kind.status, headers)
