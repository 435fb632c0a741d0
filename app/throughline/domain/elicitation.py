"""What a server asks of a person before it completes a call of its tool (MCP's elicitation), and the person's answers.

A question has the form of a call of `ask_user`, so that each interface shows it and takes the answer as for that tool.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.errors import InvalidInput
from throughline.domain.message import ToolCall

ASK_USER = "ask_user"
"""Name of the built-in tool whose calls wait for a person's answer."""

DECLINE, ACCEPT, YES, NO = "decline", "accept", "yes", "no"
"""Answers with a meaning: DECLINE refuses any question. ACCEPT and YES agree to a question without fields. YES and NO
also answer a boolean field."""

MAX_SHOWN = 200
"""Longest name or description of a server in a question, in characters."""

MAX_INPUT = 20_000
"""Longest answer in characters."""

MAX_QUESTIONS = 20
"""Most questions that one call may ask."""

QUESTIONS_KEY, QUESTION_COUNT_KEY = "questions", "waits"
"""Metadata keys of a tool's result: the server's questions with their answers, and their number.

The number stays if the message is redacted, because it divides a run into parts.
"""

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}
"""Python types by the JSON schema type of a field."""

EXAMPLES: dict[str, JsonValue] = {"integer": 1, "number": 1, "boolean": True, "array": ["…"]}
"""Values that show how an answer is written, by type; of all others it is a text."""


@dataclass(frozen=True, slots=True)
class InputRequest:
    """A question of a server. `name` is the server's own name for it, '' if it has none.

    `schema` is that of an object with flat fields, which the answer has to fit; without fields the person only agrees.
    `url` is an address that the person has to visit, '' for none.
    """

    name: str
    message: str
    schema: JsonObject
    url: str = ""

    @property
    def key(self) -> str:
        """A hash of what the person reads: only an equal question may get the answer."""
        text = json.dumps([self.message, self.schema, self.url], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def fields(self) -> dict[str, JsonObject]:
        """The fields of the answer, with their schemas."""
        found = self.schema.get("properties")
        given = found.items() if isinstance(found, dict) else ()
        return {name: field if isinstance(field, dict) else {} for name, field in given}


@dataclass(frozen=True, slots=True)
class InputGiven:
    """A person's answer to the question `key`; `content` has the fields of a form that the person filled in."""

    key: str
    action: Literal["accept", "decline"]
    content: dict[str, JsonValue] | None


@dataclass(frozen=True, slots=True)
class Elicitation:
    """The questions that a call has to have answered now, and the answers so far, in the order of the questions.

    `earlier` are answers to questions before these. `state` is what the server wants back with the answers. Servers
    before 2026-07-28 cannot wait for an answer. Their call has ended, and `ended_as` is its result. For a call that
    waits, `ended_as` is None.
    """

    requests: tuple[InputRequest, ...] = ()
    given: tuple[InputGiven, ...] = ()
    earlier: tuple[InputGiven, ...] = ()
    state: str | None = None
    ended_as: str | None = None

    @property
    def open_request(self) -> InputRequest | None:
        """The first question without an answer."""
        return self.requests[len(self.given)] if len(self.given) < len(self.requests) else None

    @property
    def answers(self) -> tuple[InputGiven, ...]:
        """All answers, for a call that is made from its beginning."""
        return (*self.earlier, *self.given)

    def with_answer(self, answer: InputGiven) -> "Elicitation":
        """Return the elicitation with the answer to the open question."""
        return replace(self, given=(*self.given, answer))


NO_ELICITATION = Elicitation()


@dataclass(frozen=True, slots=True)
class PausedCall:
    """A call of a server's tool that goes on once a person has answered the open question.

    `call` has the arguments with which it is made. `number` counts the questions of the call from 1. `note` and
    `metadata` are kept for the result: they say what a person decided on the call before. `misfit` says why the last
    answer to the question was not taken.
    """

    call: ToolCall
    server: str
    elicitation: Elicitation
    number: int
    note: str = ""
    metadata: JsonObject | None = None
    misfit: str = ""

    @property
    def request(self) -> InputRequest:
        """The open question."""
        request = self.elicitation.open_request
        assert request is not None, "a paused call has an open question"
        return request

    def as_question(self) -> ToolCall:
        """Return the open question as a call of `ask_user`."""
        request = self.request
        asked: dict[str, JsonValue] = {
            "question": "\n\n".join(_question_parts(self)),
            "options": list(_options(request)),
            "tool": self.call.name,
            "schema": dict(request.schema),
        }
        if request.url:
            asked["url"] = request.url
        return ToolCall(self._question_id(self.number), ASK_USER, json.dumps(asked, ensure_ascii=False))

    @property
    def earlier_ids(self) -> set[str]:
        """The ids of the questions of the call before the open one."""
        return {self._question_id(number) for number in range(1, self.number)}

    def _question_id(self, number: int) -> str:
        """Return the id under which question `number` of the call is answered; no other question has it."""
        return f"{self.call.id}:{number}"


def call_of_question(question_id: str) -> str:
    """Return the id of the call for which a tool's server asks the question."""
    return question_id.rpartition(":")[0]


def _question_parts(paused: PausedCall) -> Iterator[str]:
    """Yield what the person reads. What this service says comes first, so that no long text of a server cuts it off."""
    request, ended_as = paused.request, paused.elicitation.ended_as
    yield f"The server {paused.server} asks, for its tool {paused.call.name}. Answer `{DECLINE}` to refuse."
    if ended_as is not None:
        yield f"This server cannot wait: your answer makes the call once more. It has ended with: {_cut(ended_as)}"
    if paused.misfit:
        yield paused.misfit
    yield request.message
    if request.url:
        yield f"Open this address, and then answer `{ACCEPT}`: {request.url}"
    if len(request.fields) > 1 or any(not tuple(_choices(field)) for field in request.fields.values()):
        yield "\n".join(_described(request))


def _described(request: InputRequest) -> Iterator[str]:
    required = _required(request)
    for name, field in request.fields.items():
        notes = [str(field.get("type", "string")), "required" if name in required else "optional"]
        choices = tuple(_choices(field))
        if choices:
            notes.append(f"one of {_cut(', '.join(choices))}")
        text = _cut(str(field.get("description") or field.get("title") or ""))
        yield f"- {_cut(name)} ({', '.join(notes)}){f': {text}' if text.lower() not in {'', name.lower()} else ''}"
    if len(request.fields) > 1:
        example = {name: EXAMPLES.get(str(field.get("type")), "…") for name, field in request.fields.items()}
        yield f"Answer with a JSON object, such as {json.dumps(example, ensure_ascii=False)}."


def _cut(text: str) -> str:
    """Return a text of a server on one line, at most MAX_SHOWN characters of it."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}…"


def _options(request: InputRequest) -> Iterator[str]:
    """Yield the answers to choose from; none if the answer has to be written."""
    fields = list(request.fields.values())
    if len(fields) > 1:
        return
    choices = tuple(_choices(fields[0])) if fields else (ACCEPT,)
    yield from (*choices, DECLINE) if choices else ()


def _choices(field: JsonObject) -> Iterator[str]:
    """Yield the names of the values that a field may have; none if it may have any."""
    if field.get("type") == "boolean":
        yield from (YES, NO)
    elif field.get("type") != "array":
        yield from _values_by_title(field)


def _values_by_title(field: JsonObject) -> dict[str, str]:
    """Return the values that a field may have, by title."""
    titled = field.get("oneOf") or field.get("anyOf")
    if isinstance(titled, list):
        named = [one for one in titled if isinstance(one, dict) and isinstance(one.get("const"), str)]
        return {str(one.get("title") or one["const"]): str(one["const"]) for one in named}
    values = field.get("enum")
    listed = [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
    titles = field.get("enumNames")
    if isinstance(titles, list) and len(titles) == len(listed):
        return {str(title): value for title, value in zip(titles, listed, strict=True)}
    return {value: value for value in listed}


def _required(request: InputRequest) -> frozenset[str]:
    named = request.schema.get("required")
    return frozenset(str(name) for name in named) if isinstance(named, list) else frozenset()


def read_input(request: InputRequest, text: str) -> InputGiven:
    """Return the answer to a question that a person wrote as `text`. Raises InvalidInput if it does not fit.

    The answer to a question with one field may be the field's value alone; anything else is a JSON object.
    """
    written, fields = text.strip(), request.fields
    if len(written) > MAX_INPUT:
        raise InvalidInput(f"The answer has {len(written):,} characters; at most {MAX_INPUT:,} are taken.")
    if written.lower() == DECLINE:
        return InputGiven(request.key, "decline", None)
    if not fields:
        if written.lower() not in {ACCEPT, YES}:
            raise InvalidInput(f"The question can be answered with `{ACCEPT}` or `{DECLINE}` only.")
        return InputGiven(request.key, "accept", None if request.url else {})
    content = _object_in(written)
    if content is None and len(fields) == 1:
        ((name, field),) = fields.items()
        content = {name: _read_value(field, written)}
    if content is None:
        named = ", ".join(map(_cut, fields))
        raise InvalidInput(f"The answer must be one JSON object with the fields {named}, or `{DECLINE}`.")
    content = {name: _value_of_choice(request.fields.get(name), value) for name, value in content.items()}
    misfit = next(_misfits(request, content), "")
    if misfit:
        raise InvalidInput(f"The answer does not fit the question: {misfit}. Change it, or answer `{DECLINE}`.")
    return InputGiven(request.key, "accept", content)


def _object_in(text: str) -> dict[str, JsonValue] | None:
    value = _json_in(text) if text.startswith("{") else None
    return value if isinstance(value, dict) else None


def _json_in(text: str) -> JsonValue:
    """Return the JSON value of the text, None if it is none. NaN and infinite numbers are none."""
    try:
        value: JsonValue = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value


def _read_value(field: JsonObject, text: str) -> JsonValue:
    """Return the value that the text stands for; the text itself if it stands for no value of the field's type."""
    match field.get("type"):
        case "boolean" if text.lower() in {YES, NO, "true", "false"}:
            return text.lower() in {YES, "true"}
        case "integer" | "number" | "boolean" | "array":
            value = _json_in(text)
            return text if value is None else value
        case _:
            return text


def _value_of_choice(field: JsonObject | None, value: JsonValue) -> JsonValue:
    """Return the value of the choice with this title; any other value unchanged."""
    return _values_by_title(field).get(value, value) if field is not None and isinstance(value, str) else value


def _misfits(request: InputRequest, content: dict[str, JsonValue]) -> Iterator[str]:
    for name in sorted(_required(request) - content.keys()):
        yield f"{_cut(name)!r} is missing"
    for name, value in content.items():
        field = request.fields.get(name)
        if field is None:
            yield f"it has no field {_cut(name)!r}"
        elif value is not None or name in _required(request):
            misfit = _misfit(field, value)
            if misfit:
                yield f"{_cut(name)!r} {misfit}"


def _misfit(field: JsonObject, value: JsonValue) -> str:
    """Return why the value cannot be that of the field, '' if it can."""
    kind = str(field.get("type", "string"))
    is_of_kind = isinstance(value, TYPES.get(kind, (str,))) and (kind == "boolean") is isinstance(value, bool)
    if not is_of_kind:
        return f"must be of the type {kind}"
    if isinstance(value, list):
        items = field.get("items")
        allowed = set(_values_by_title(items).values()) if isinstance(items, dict) else set()
        is_listed = all(isinstance(one, str) and (not allowed or one in allowed) for one in value)
        return "" if is_listed else f"must be a list of: {_cut(', '.join(sorted(allowed))) or 'texts'}"
    known = _values_by_title(field)
    if isinstance(value, str) and known and value not in known.values():
        return f"must be one of: {_cut(', '.join(known.values()))}"
    return _beyond(field, value)


def _beyond(field: JsonObject, value: JsonValue) -> str:
    """Return which limit of the field the value breaks, '' if none."""
    size = len(value) if isinstance(value, str) else value
    least, most = ("minLength", "maxLength") if isinstance(value, str) else ("minimum", "maximum")
    unit = " characters" if isinstance(value, str) else ""
    lower, upper = field.get(least), field.get(most)
    if isinstance(size, int | float) and isinstance(lower, int | float) and size < lower:
        return f"must be at least {lower}{unit}"
    if isinstance(size, int | float) and isinstance(upper, int | float) and size > upper:
        return f"must be at most {upper}{unit}"
    return ""
