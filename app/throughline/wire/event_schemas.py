"""JSON schemas of the events of a run, made from the shapes that render them.

They describe an event as a parser of event streams returns it, with `data` read as JSON.
"""

from collections.abc import Mapping

from pydantic.json_schema import models_json_schema

from throughline.wire.events import EVENTS, EventData
from throughline.wire.json_shape import JsonDict

UNION = "RunEvent"
"""Name of the schema that every event fits."""


def event_schemas(reference: str) -> dict[str, JsonDict]:
    """Return the schemas by name: the union of all events, one for each event, and those of the events' data.

    `reference` is the form of references between them, with `{model}` for a name.
    """
    shapes = dict.fromkeys(EVENTS.values())
    _, data = models_json_schema([(shape, "serialization") for shape in shapes], ref_template=reference)
    schemas: dict[str, JsonDict] = {**data["$defs"]}
    names = {event: schema_name(event) for event in EVENTS}
    for event, name in names.items():
        schemas[name] = _event_schema(event, EVENTS[event], reference)
    schemas[UNION] = _union({event: reference.format(model=name) for event, name in names.items()})
    return schemas


def schema_name(event: str) -> str:
    """Return the name of an event's schema: `RunStartedEvent` for `run.started`."""
    return "".join(word.capitalize() for word in event.split(".")) + "Event"


def _event_schema(event: str, shape: type[EventData], reference: str) -> JsonDict:
    return {
        "type": "object",
        "title": schema_name(event),
        "description": (shape.__doc__ or "").strip(),
        "required": ["id", "event", "data"],
        "properties": {
            "id": {"type": "string", "description": "number of the event in its run; send it as `Last-Event-ID`"},
            "event": {"type": "string", "const": event},
            "data": {"$ref": reference.format(model=shape.__name__)},
        },
    }


def _union(references: Mapping[str, str]) -> JsonDict:
    return {
        "title": UNION,
        "description": "An event of a run. Later versions may send other events: ignore those.",
        "oneOf": [{"$ref": reference} for reference in references.values()],
        "discriminator": {"propertyName": "event", "mapping": {**references}},
    }
