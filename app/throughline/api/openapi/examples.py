"""Examples of bodies and answers in the OpenAPI document. Tests validate each against its schema."""

from collections.abc import Iterator, Mapping

from throughline.api.export import MEDIA_TYPE as JSON_LINES
from throughline.api.openapi.example_answers import (
    ANSWER,
    ANSWERS,
    CONTEXT,
    DECISION,
    QUESTION,
    QUEUED,
    RUN,
    SESSION,
    SESSION_ID,
)
from throughline.domain.events import EventType
from throughline.http.documented import Json
from throughline.http.sse import MEDIA_TYPE as EVENT_STREAM
from throughline.http.sse import json_bytes
from throughline.http.start_page import MEDIA_TYPE as HTML_PAGE
from throughline.http.start_page import html_page
from throughline.wire.json_shape import JsonDict

BODIES: Mapping[str, JsonDict] = {
    "CreateSession": {
        "agent": "assistant",
        "title": "The orders index",
        "metadata": {"project": "orders"},
        "external_id": "ticket-4711",
    },
    "ChangeSession": {"title": "The orders index, settled", "archived": True},
    "SendMessage": {"content": "What did we decide about the index?", "metadata": {"page": "/orders"}},
    "ResumeRun": {"calls": [{"call_id": "call_1", "decision": "approve"}]},
    "CreateToken": {"session_ids": [SESSION_ID], "scopes": ["read"], "expires_in": 900},
    "PreviewContext": {"content": "What did we decide about the index?"},
    "Summarize": {"instructions": "Keep every decision with its reason."},
    "CreateMemory": {"text": "Anna's cat is called Miso.", "metadata": {"from": "chat"}},
    "ChangeMemory": {"text": "Anna's cats are called Miso and Nori."},
    "SearchMemories": {"query": "the name of the cat", "limit": 5},
    "ImportSession": {
        "agent": "assistant",
        "title": "The orders index",
        "messages": [
            {"role": "user", "content": "What did we decide about the index?"},
            {"role": "assistant", "content": "You decided on a partial index over open orders."},
        ],
    },
}


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
        {"run": {**QUEUED, "status": "running", "attempt": 1}, "user_message_id": QUESTION["id"]},
    )
    + _event(2, EventType.MESSAGE_DELTA, {"message_id": ANSWER["id"], "text": DECISION})
    + _event(3, EventType.MESSAGE_COMPLETED, {"message": ANSWER})
    + _event(4, EventType.RUN_COMPLETED, {"run": RUN, "message": ANSWER, "context": CONTEXT}),
    JSON_LINES: _line("session", SESSION) + _line("message", QUESTION) + _line("message", ANSWER),
    HTML_PAGE: html_page("Not found", "<h1>Not found</h1>\n<p>…</p>"),
    "text/plain": "throughline_turns_total 128.0\n",
}
"""Examples of bodies that are text, by their media type."""
