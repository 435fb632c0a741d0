"""Questions of servers: read from their requests, and answered with what a person has said.

Servers of the revision 2026-07-28 end a call with their questions, and are called again with the answers. Older servers
ask while the call runs, and an answer may take days. Their question is cancelled. Once there is an answer, the call is
made again.
"""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from mcp.client.session import ClientRequestContext
from mcp_types import (
    INVALID_REQUEST,
    ElicitationRequiredErrorData,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    InputRequiredResult,
    InputResponses,
)
from pydantic import ValidationError

from throughline.domain.elicitation import TYPES, Elicitation, InputGiven, InputRequest
from throughline.domain.message import clean_text
from throughline.execution.json_schema import MAX_SCHEMA_BYTES
from throughline.tools.make_function_tool import ToolFailed

MAX_QUESTIONS_AT_ONCE = 10
MAX_FIELDS = 50
MAX_MESSAGE = 4_000
MAX_URL = 2_000
MAX_STATE = 100_000


def read_questions(tool: str, result: InputRequiredResult) -> Elicitation:
    """Return what the server asks before it completes a call of the tool. Raises ToolFailed if it cannot be asked."""
    if len(result.request_state or "") > MAX_STATE or not _is_clean(result.request_state or ""):
        raise _unusable(tool, f"a state of more than {MAX_STATE:,} characters, or with NUL")
    asked = result.input_requests or {}
    if len(asked) > MAX_QUESTIONS_AT_ONCE:
        raise _unusable(tool, f"{len(asked)} questions at once")
    requests = [_read(tool, name, request) for name, request in asked.items()]
    return Elicitation(tuple(requests), state=result.request_state)


def _read(tool: str, name: str, request: object) -> InputRequest:
    if not isinstance(request, ElicitRequest):
        raise _unusable(tool, "something else than an answer of a person")
    return _read_parameters(tool, name, request.params)


def read_addresses(tool: str, data: object) -> list[InputRequest]:
    """Return the addresses that a person has to visit before the tool is called, as a server's error has them."""
    try:
        asked = ElicitationRequiredErrorData.model_validate(data).elicitations
    except ValidationError:
        raise _unusable(tool, "addresses that cannot be read") from None
    return [_read_parameters(tool, "", one) for one in asked[:MAX_QUESTIONS_AT_ONCE]]


def _read_parameters(tool: str, name: str, asked: ElicitRequestParams) -> InputRequest:
    message = clean_text(asked.message)
    shown = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]} …"
    if not _is_clean(name):
        raise _unusable(tool, "a name with NUL")
    if isinstance(asked, ElicitRequestURLParams):
        if not _is_address(asked.url):
            raise _unusable(tool, "an address that is none of the web, or that hides where it leads")
        return InputRequest(name, shown, {}, asked.url)
    problem = _schema_problem(asked)
    if problem:
        raise _unusable(tool, problem)
    return InputRequest(name, shown, asked.requested_schema)


def _is_address(url: str) -> bool:
    """Return whether the text is an address of the web, in ASCII and without the name of a user before the host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= MAX_URL
    return is_plain and parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.username is None


def _schema_problem(asked: ElicitRequestFormParams) -> str:
    """Return why a person cannot fill in the form, '' if one can."""
    fields = asked.requested_schema.get("properties")
    try:
        text = json.dumps(asked.requested_schema, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return "a form with NaN or an infinite number"
    if not isinstance(fields, dict) or len(fields) > MAX_FIELDS or len(text.encode()) > MAX_SCHEMA_BYTES:
        return f"a form without fields, with more than {MAX_FIELDS} or of more than {MAX_SCHEMA_BYTES:,} bytes"
    if not _is_clean(text) or not all(map(_is_field, fields.values())):
        return "a form with NUL, or with fields that are no texts, numbers, choices or lists"
    return ""


def _is_field(schema: object) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return isinstance(kind, str) and kind in TYPES


def _is_clean(text: str) -> bool:
    return clean_text(text) == text and "\\u0000" not in text


def _unusable(tool: str, what: str) -> ToolFailed:
    return ToolFailed(f"{tool} was not completed: its server asks for input that cannot be given: {what}.")


def responses_of(elicitation: Elicitation) -> InputResponses | None:
    """Return the answers in the protocol's form, None without any."""
    pairs = zip(elicitation.requests, elicitation.given, strict=False)  # none is open when they are sent
    return {request.name: _as_result(given) for request, given in pairs} or None


def _as_result(given: InputGiven) -> ElicitResult:
    return ElicitResult.model_validate({"action": given.action, "content": given.content})


def take_answer(answers: list[InputGiven], request: InputRequest) -> InputGiven | None:
    """Remove the first answer to an equal question from `answers` and return it, None if there is none."""
    found = next((one for one in answers if one.key == request.key), None)
    if found is not None:
        answers.remove(found)
    return found


@dataclass(slots=True)
class RunningCall:
    """A call that runs: the answers that its server has not asked for yet, and the first question without one.

    `has_ended`: whether the server has answered the call.
    """

    tool: str
    elicitation: Elicitation
    answers: list[InputGiven]
    asked: InputRequest | None = None
    has_ended: bool = False

    def ask(self, request: InputRequest) -> InputGiven | None:
        """Return the answer to the question; without one, None, and keep the question if it is the first such."""
        given = take_answer(self.answers, request)
        if given is None and self.asked is None:
            self.asked = request
        return given

    def open_question(self, result_text: str) -> Elicitation | None:
        """Return the first question without an answer, None if there is none. The call returned `result_text`."""
        if self.asked is None:
            return None
        return Elicitation((self.asked,), earlier=self.elicitation.answers, ended_as=result_text[:MAX_MESSAGE])


class OpenCalls:
    """The calls that run on one connection, and the questions that a server of an older revision asks in them.

    Such a question does not say to which call it belongs. It is shown only if one call runs and none was given up
    before, because it might be about another user's call. Once it was not shown for a call that was given up, and no
    call runs, the connection is reported as lost, so that a new one can ask again.
    """

    def __init__(self, is_lost: Callable[[], bool], report_lost: Callable[[str], None]) -> None:
        """Watch no call yet. `is_lost` tells whether the connection has ended."""
        self.is_lost = is_lost
        self._report_lost = report_lost
        self._calls: list[RunningCall] = []
        self._is_ambiguous = self._has_refused = False

    @contextmanager
    def during(self, tool: str, elicitation: Elicitation) -> Generator[RunningCall]:
        """Register a call for the block and yield it. The block sets `has_ended` when the server has answered."""
        call = RunningCall(tool, elicitation, list(elicitation.answers))
        self._calls.append(call)
        try:
            yield call
        finally:
            self._calls.remove(call)
            self._is_ambiguous = self._is_ambiguous or not call.has_ended
            if self._has_refused and not self._calls:
                self._report_lost("it asked a question that may belong to a call that was given up")

    async def answer(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:  # noqa: ARG002  # the SDK names both
        """Return a person's answer if there is one; else cancel the question, and keep it for a person."""
        if len(self._calls) != 1 or self._is_ambiguous:
            self._has_refused = self._is_ambiguous
            return ErrorData(code=INVALID_REQUEST, message="No question can be asked: it may belong to another call")
        (call,) = self._calls
        try:
            given = call.ask(_read_parameters(call.tool, "", params))
        except ToolFailed as error:
            return ErrorData(code=INVALID_REQUEST, message=str(error))
        return ElicitResult(action="cancel") if given is None else _as_result(given)
