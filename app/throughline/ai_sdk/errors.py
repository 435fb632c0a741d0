"""Errors as `useChat` shows them: it takes the whole text of an answer as the error's message."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute

from throughline.domain.errors import ThroughlineError
from throughline.http.problem_documents import error_problem, invalid_request


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
    """Return the error with the status and the headers of its problem document."""
    problem = error_problem(error)
    del problem.headers["Content-Type"], problem.headers["Content-Length"]
    return PlainTextResponse(error.detail, problem.status_code, problem.headers)
