"""Errors in the words of OpenAI's clients: the request's own fields, and conversations by their ids.

Most errors come from parts of the service that know only its own overrides and sessions. Runs keep their own ids, which
`GET /v1/runs/{id}` takes: an error does not know which part of a run, and so which response, it is about.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from throughline.api.http.request_errors import InvalidRequest
from throughline.api.openai.ids import conversation_id
from throughline.domain.errors import InvalidInput, ThroughlineError
from throughline.domain.ids import SessionId

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
