"""Errors in the words of OpenAI's clients: the request's own fields, and conversations and responses by their ids.

Most errors come from parts of the service that know only its own overrides, sessions and runs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from throughline.api.http.request_errors import InvalidRequest
from throughline.api.openai.ids import ResponseRef, conversation_id
from throughline.domain.errors import InvalidInput, ThroughlineError
from throughline.domain.ids import RunId, SessionId

OVERRIDES, RESUMED_CALLS = "overrides.", "calls."
"""Beginnings of fields of the service's own requests: for messages, and for what a waiting turn is given."""

PARAMS: Mapping[str, str] = {"model_not_found": "model", "previous_response_not_found": "previous_response_id"}
"""The field that names what is missing, by the code of the error."""

_UUID = r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_SESSION = re.compile(rf"\b([Ss])ession {_UUID}", re.ASCII)
_RUN = re.compile(rf"(\b(?:turn|run) |/v1/runs/){_UUID}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClientWords:
    """The words of one kind of request.

    `messages` is the field with the messages and the outputs of calls. `fields` are the request's names of overrides
    where they differ from the service's; a longer name comes first. `has_sessions`: its clients know sessions and runs
    by their own ids.
    """

    messages: str
    fields: Mapping[str, str]
    has_sessions: bool = False

    def explain(self, error: ThroughlineError) -> tuple[str, str | None]:
        """Return the error's text and the name of the wrong field, None if the error is about no field.

        A text that calls the field by another name begins with the field's name.
        """
        detail, field = error.detail if self.has_sessions else _as_responses(error.detail), _field_of(error)
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


def _as_responses(detail: str) -> str:
    """Return the text with a conversation for each session that it names, and a response for each run."""
    told = _SESSION.sub(_conversation, detail)
    return _RUN.sub(_response, told)


def _conversation(found: "re.Match[str]") -> str:
    begin = "C" if found[1] == "S" else "c"
    return f"{begin}onversation {conversation_id(SessionId(UUID(found[2])))}"


def _response(found: "re.Match[str]") -> str:
    before = "/v1/responses/" if found[1].startswith("/") else "response "
    return f"{before}{ResponseRef(RunId(UUID(found[2])))}"
