"""Errors in OpenAI's form: what its clients read, and whether they should try again.

Form: https://platform.openai.com/docs/guides/error-codes . The clients repeat a request after 408, 409, 429 and 5xx,
unless the header `x-should-retry` says otherwise.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from uuid import UUID

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from throughline.domain.basic_types import JsonValue, SessionId
from throughline.domain.errors import InvalidInput, TemporaryError, ThroughlineError
from throughline.domain.run import Run, RunError, RunStatus
from throughline.http.auth import route_of
from throughline.http.problem_documents import (
    JsonResponse,
    headers_of,
    http_error_problem,
    http_error_words,
    route_class_with_error_format,
)
from throughline.http.route_errors import PROBLEM_KINDS, RUN_CANCELLED, InvalidRequest
from throughline.openai.output_items import conversation_id
from throughline.wire.events import UNKNOWN_ERROR

# Errors in the words of OpenAI's clients: the request's own fields, and conversations by their ids. Most errors come
# from parts of the service that know only its own overrides and sessions. Runs keep their own ids, which `GET
# /v1/runs/{id}` takes: an error does not know which part of a run, and so which response, it is about.

OVERRIDES, RESUMED_CALLS = "overrides.", "calls."
"""Beginnings of fields of the service's own requests: for messages, and for what a waiting turn is given."""

PARAMS: Mapping[str, str] = {"model_not_found": "model", "previous_response_not_found": "previous_response_id"}
"""The field that names what is missing, by the code of the error."""

_UUID = r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_SESSION = re.compile(rf"(?<!['\"`])\b([Ss])ession {_UUID}(?!['\"`])", re.ASCII)
"""A session that a text names. What stands between quotation marks was sent by the client."""


@dataclass(frozen=True, slots=True)
class ClientWords:
    """The words of one kind of request.

    `messages` is the field with the messages and the outputs of calls. `fields` are the request's names of overrides
    where they differ from the service's; a longer name comes first. `has_sessions`: its clients know sessions by
    their own ids.
    """

    messages: str
    fields: Mapping[str, str]
    has_sessions: bool = False

    def explain(self, error: ThroughlineError) -> tuple[str, str | None]:
        """Return the error's text and the name of the wrong field, None if the error is about no field.

        A text that calls the field by another name begins with the field's name.
        """
        detail = error.detail if self.has_sessions else _SESSION.sub(_as_conversation, error.detail)
        field = _field_of(error)
        if field.startswith(RESUMED_CALLS):
            return detail, self.messages
        known = field.removeprefix(OVERRIDES)
        if known == field:
            return detail, field or None
        named = self._named(known)
        return detail if named == known else f"{named}: {detail}", named

    def _named(self, field: str) -> str:
        for ours, theirs in self.fields.items():
            if field == ours or field.startswith(f"{ours}."):
                return theirs + field.removeprefix(ours)
        return field


CHAT_WORDS = ClientWords("messages", {"instructions": "messages"}, has_sessions=True)
RESPONSE_WORDS = ClientWords("input", {"response_format.json_schema": "text.format", "response_format": "text.format"})


def _field_of(error: ThroughlineError) -> str:
    """Return the service's name of the wrong field, '' without one."""
    if isinstance(error, InvalidRequest):
        return error.errors[0].field
    return error.field if isinstance(error, InvalidInput) else PARAMS.get(error.code, "")


def _as_conversation(found: "re.Match[str]") -> str:
    begin = "C" if found[1] == "S" else "c"
    return f"{begin}onversation {conversation_id(SessionId(UUID(found[2])))}"


OPENAI = "openai"
"""The tag of OpenAI's routes. They have a document of their own, `openai/front_end.py`."""

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


def _respond(request: Request, error: ThroughlineError) -> Response:
    """Return the error in OpenAI's form, in the words of the request's route."""
    if isinstance(error, TurnFailed):
        shown = {"error": error_json(error.error.type, error.detail)}
        return JsonResponse(shown, status_of(error.error.type), {"x-should-retry": "false"})
    return error_response(error, CHAT_WORDS if route_of(request)[1].startswith(CHAT_PATH) else RESPONSE_WORDS)


OpenAIRoute = route_class_with_error_format(_respond)


def error_response(error: ThroughlineError, words: ClientWords) -> Response:
    """Return the error as OpenAI's clients read it."""
    headers = {**headers_of(error), "x-should-retry": "true" if isinstance(error, TemporaryError) else "false"}
    return JsonResponse({"error": explained_json(error, words)}, status_of(error.code), headers)


def explained_json(error: ThroughlineError, words: ClientWords) -> dict[str, JsonValue]:
    """Return the member `error` for an error of the service, in the client's words."""
    detail, param = words.explain(error)
    return error_json(error.code, detail, param=param)


class TurnFailed(ThroughlineError):
    """A turn ended without an answer; `error` says why."""

    def __init__(self, error: RunError) -> None:
        """Keep `error`."""
        super().__init__(error.detail)
        self.error = error


def failure_of(run: Run) -> RunError:
    """Return why a failed or cancelled run has no answer."""
    if run.status is RunStatus.CANCELLED:
        return RunError(RUN_CANCELLED, "The run was cancelled before it had an answer. The message is kept.")
    return run.error or UNKNOWN_ERROR


def error_json(code: str, detail: str, *, param: str | None = None) -> dict[str, JsonValue]:
    """Return the member `error` for an error code of this service."""
    kind = TYPES.get(status_of(code), INVALID)
    return {"message": detail, "type": kind, "param": param, "code": CODES.get(code, code)}


def status_of(code: str) -> int:
    """Return the HTTP status of an error code; OpenAI uses 400 where this service uses 422."""
    status = PROBLEM_KINDS.get(code, PROBLEM_KINDS["internal_error"]).status
    return HTTPStatus.BAD_REQUEST if status == HTTPStatus.UNPROCESSABLE_ENTITY else status


OWN_MODEL = "Ask the provider of such a model directly."
FILES = "Images go into messages. For other files give the agent a tool that reads them."
NO_TRAINING = "Train and compare models at their provider. The agent's file names the model."
INSTEAD: Mapping[str, str] = {
    "assistants": "Agents are files of this service, and `model` names one. Use POST /v1/responses.",
    "threads": "Use POST /v1/conversations and POST /v1/responses.",
    "completions": "Use POST /v1/chat/completions or POST /v1/responses.",
    "embeddings": "Ask the provider of your embedding model. Search what the service stores with GET /v1/search.",
    "realtime": "Use the WebSocket /v1/responses, with text.",
    "audio": OWN_MODEL,
    "images": OWN_MODEL,
    "videos": OWN_MODEL,
    "moderations": OWN_MODEL,
    "batches": "Send each request to POST /v1/responses with `background`.",
    "files": FILES,
    "uploads": FILES,
    "vector_stores": FILES,
    "containers": FILES,
    "skills": "The agent's file says what the agent can do.",
    "chatkit": "Use POST /v1/responses.",
    "fine_tuning": NO_TRAINING,
    "evals": NO_TRAINING,
}
"""What to use in place of routes that are absent, by what follows `/v1/` in their paths."""

PRESENT = ("responses", "conversations", "chat", "models")
GUIDE = "docs/guides/openai.md lists the routes of this interface."
PATH = re.compile(r"/v1/(\w+)(?:/|$)", re.ASCII)


def add_absent_routes(app: FastAPI) -> None:
    """Register the handler of 404 and 405: in OpenAI's form on its paths, problem documents elsewhere."""
    app.add_exception_handler(HTTPException, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    """Answer in OpenAI's form if the path is one of OpenAI's, and with a problem document otherwise."""
    assert isinstance(error, HTTPException)
    found = PATH.match(request.url.path)
    name = "" if found is None else found[1]
    if name not in INSTEAD and name not in PRESENT:
        return http_error_problem(request, error)
    words = http_error_words(request, error)
    detail = f"This service has no /v1/{name}. {INSTEAD[name]}" if name in INSTEAD else f"{words.detail} {GUIDE}"
    headers = {**words.headers, "x-should-retry": "false"}
    return JsonResponse({"error": error_json(words.code, detail)}, status_of(words.code), headers)
