"""The OpenAPI document describes every event as it is sent."""

import json
from typing import Any, TypeAlias

import pytest
from jsonschema import Draft202012Validator, ValidationError

from fakes.api_stage import KEYED, set_stage
from fakes.domain_events import EVENTS, RUN
from throughline.api.answer_turn import render_event
from throughline.cli.answer_stream import SseParser
from throughline.db.database import Database
from throughline.domain.events import Event, EventType, RunEvent
from throughline.wire.events import UNION, schema_name

Json: TypeAlias = dict[str, Any]


@pytest.fixture
def document(database: Database) -> Json:
    return set_stage(database, KEYED).app.openapi()


def sent(event: Event) -> Json:
    """Return an event as a reader of the stream gets it."""
    (raw,) = SseParser().feed(render_event(RunEvent(RUN.id, 7, event)))
    return {"id": raw.id, "event": raw.event, "data": json.loads(raw.data)}


def check(document: Json, event: Json) -> None:
    schema = {"$ref": f"#/components/schemas/{UNION}", **document}
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(event)


def test_there_is_an_event_of_every_type() -> None:
    assert {event.type for event in EVENTS} == set(EventType)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type.value)
def test_an_event_has_the_documented_fields(document: Json, event: Event) -> None:
    raw = sent(event)
    check(document, raw)

    schemas = document["components"]["schemas"]
    data = schemas[schema_name(event.type)]["properties"]["data"]["$ref"].rpartition("/")[2]
    assert raw["data"].keys() == schemas[data]["properties"].keys()
    assert schemas[UNION]["discriminator"]["mapping"][event.type].endswith(f"/{schema_name(event.type)}")


def test_data_of_another_event_does_not_fit(document: Json) -> None:
    events = {event.type: sent(event) for event in EVENTS}

    with pytest.raises(ValidationError):
        check(document, {**events[EventType.MESSAGE_DELTA], "data": events[EventType.RESET]["data"]})


@pytest.mark.parametrize(
    ("path", "method"), [("/v1/sessions/{session_id}/messages", "post"), ("/v1/runs/{run_id}/events", "get")]
)
def test_a_stream_is_text_that_holds_events(document: Json, path: str, method: str) -> None:
    schema = document["paths"][path][method]["responses"]["200"]["content"]["text/event-stream"]["schema"]

    assert schema["type"] == "string"
    assert schema["contentSchema"] == {"type": "array", "items": {"$ref": f"#/components/schemas/{UNION}"}}


def test_an_answer_to_a_message_is_json_first(document: Json) -> None:
    answers = document["paths"]["/v1/sessions/{session_id}/messages"]["post"]["responses"]["200"]["content"]

    assert list(answers) == ["application/json", "text/event-stream"]
