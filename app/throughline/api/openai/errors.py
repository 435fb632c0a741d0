"""Errors in OpenAI's form: what its clients read, and whether they should try again.

Form: https://platform.openai.com/docs/guides/error-codes . The clients repeat a request after 408, 409, 429 and 5xx,
unless the header `x-should-retry` says otherwise.
"""

from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from throughline.api.http.problem_documents import field_errors, headers_of
from throughline.api.http.problem_kinds.all_kinds import PROBLEM_KINDS
from throughline.api.http.problem_kinds.of_conflicts import RUN_CANCELLED
from throughline.api.http.request_errors import InvalidRequest
from throughline.api.http.responses import JsonResponse
from throughline.api.openai.client_words import CHAT_WORDS, RESPONSE_WORDS, ClientWords
from throughline.domain.errors import TemporaryError, ThroughlineError
from throughline.domain.json_types import JsonValue
from throughline.domain.run import Run, RunError, RunStatus

OPENAI = "openai"
"""The tag of OpenAI's routes. They have a document of their own, `api/openapi/openai_document.py`."""

INVALID = "invalid_request_error"
TYPES: Mapping[int, str] = {
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.INTERNAL_SERVER_ERROR: "server_error",
    HTTPStatus.BAD_GATEWAY: "server_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "server_error",
    HTTPStatus.GATEWAY_TIMEOUT: "server_error",
}
"""Error types by status; every other status has the type INVALID."""

CODES: Mapping[str, str] = {"not_authenticated": "invalid_api_key", "daily_budget_spent": "insufficient_quota"}
"""OpenAI's codes for errors of this service; all others keep their own code."""

CHAT_PATH = "/v1/chat/"


class OpenAIRoute(APIRoute):
    """Route whose errors are answered in OpenAI's form instead of as problem documents."""

    def get_route_handler(
        self,
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:  # Any: as the framework declares it
        """Return the handler of the route, with its errors converted."""
        handler = super().get_route_handler()
        words = CHAT_WORDS if self.path.startswith(CHAT_PATH) else RESPONSE_WORDS

        async def handle(request: Request) -> Response:
            try:
                response: Response = await handler(request)
            except RequestValidationError as error:
                return error_response(InvalidRequest(field_errors(error.errors())), words)
            except ThroughlineError as error:
                return error_response(error, words)
            except TurnFailed as failed:
                return failure_response(failed.error)
            return response

        return handle


def error_response(error: ThroughlineError, words: ClientWords) -> Response:
    """Return the error as OpenAI's clients read it."""
    headers = {**headers_of(error), "x-should-retry": "true" if isinstance(error, TemporaryError) else "false"}
    return JsonResponse({"error": explained_json(error, words)}, status_of(error.code), headers)


def explained_json(error: ThroughlineError, words: ClientWords) -> dict[str, JsonValue]:
    """Return the member `error` for an error of the service, in the client's words."""
    detail, param = words.explain(error)
    return error_json(error.code, detail, param=param)


class TurnFailed(Exception):
    """A turn ended without an answer; `error` says why."""

    def __init__(self, error: RunError) -> None:
        """Keep `error`."""
        super().__init__(error.detail)
        self.error = error


def failure_of(run: Run) -> RunError:
    """Return why a failed or cancelled run has no answer."""
    if run.status is RunStatus.CANCELLED:
        return RunError(RUN_CANCELLED, "The run was cancelled before it had an answer. The message is kept.")
    return run.error or RunError("internal_error", "The run failed. The message is kept; send it again.")


def failure_response(error: RunError) -> Response:
    """Return the error with which a run failed, as OpenAI's clients read it."""
    headers = {"x-should-retry": "false"}
    return JsonResponse({"error": error_json(error.type, error.detail)}, status_of(error.type), headers)


def error_json(code: str, detail: str, *, param: str | None = None) -> dict[str, JsonValue]:
    """Return the member `error` for an error code of this service."""
    kind = TYPES.get(status_of(code), INVALID)
    return {"message": detail, "type": kind, "param": param, "code": CODES.get(code, code)}


def status_of(code: str) -> int:
    """Return the HTTP status of an error code; OpenAI uses 400 where this service uses 422."""
    status = PROBLEM_KINDS.get(code, PROBLEM_KINDS["internal_error"]).status
    return HTTPStatus.BAD_REQUEST if status == HTTPStatus.UNPROCESSABLE_ENTITY else status
