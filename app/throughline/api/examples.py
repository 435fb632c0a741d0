"""Examples of bodies and answers in the OpenAPI document. Tests validate each against its schema.

`examples.json` has them by the names of their schemas: a session in which an index was decided on.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from throughline.api.imports import MEDIA_TYPE as JSON_LINES
from throughline.api.pages import MEDIA_TYPE as HTML_PAGE
from throughline.api.pages import html_page
from throughline.domain.events import EventType
from throughline.http.documents import Json
from throughline.http.follow import MEDIA_TYPE as EVENT_STREAM
from throughline.http.problem_documents import json_bytes
from throughline.wire.json_shape import JsonDict

_FILE = json.loads(Path(__file__).with_name("examples.json").read_text(encoding="utf-8"))
BODIES: Mapping[str, JsonDict] = _FILE["bodies"]
ANSWERS: Mapping[str, JsonDict] = _FILE["answers"]
_SESSION, _QUESTION, _QUEUED, _TURN = (
    ANSWERS["SessionOut"],
    ANSWERS["MessageOut"],
    _FILE["answers"]["Accepted"]["run"],
    _FILE["answers"]["TurnOut"],
)


def add_examples(operation: Json) -> None:
    """Give each body and each answer of an operation its example. Problem documents have none."""
    for media_type, media in _contents(operation):
        example = TEXTS.get(media_type) or _example_of(media.get("schema", {}))
        if example is not None:
            media["example"] = example


def _example_of(schema: Json) -> JsonDict | None:
    """Return the example of the named schema, of several the first one's; None for schemas without an example."""
    first = schema.get("anyOf", [schema])[0]
    name = first.get("$ref", "").rpartition("/")[2]
    return BODIES.get(name) or ANSWERS.get(name)


def _contents(operation: Json) -> Iterator[tuple[str, Json]]:
    yield from operation.get("requestBody", {}).get("content", {}).items()
    for response in operation["responses"].values():
        yield from response.get("content", {}).items()


def _event(number: int, event: EventType, data: JsonDict) -> str:
    return f"id: {number}\nevent: {event.value}\ndata: {json_bytes(data).decode()}\n\n"


def _line(kind: str, item: JsonDict) -> str:
    return json_bytes({"type": kind, **item}).decode() + "\n"


TEXTS = {
    EVENT_STREAM: _event(
        1,
        EventType.RUN_STARTED,
        {"run": {**_QUEUED, "status": "running", "attempt": 1}, "user_message_id": _QUESTION["id"]},
    )
    + _event(2, EventType.MESSAGE_DELTA, {"message_id": _TURN["message"]["id"], "text": _TURN["message"]["content"]})
    + _event(3, EventType.MESSAGE_COMPLETED, {"message": _TURN["message"]})
    + _event(4, EventType.RUN_COMPLETED, _TURN),
    JSON_LINES: _line("session", _SESSION) + _line("message", _QUESTION) + _line("message", _TURN["message"]),
    HTML_PAGE: html_page("Not found", "<h1>Not found</h1>\n<p>…</p>"),
    "text/plain": "throughline_turns_total 128.0\n",
}
"""Examples of bodies that are text, by their media type."""
