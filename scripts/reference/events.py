"""The made parts of the page of events: when each is sent, and its fields."""

from collections.abc import Iterator

from pydantic.json_schema import models_json_schema

from scripts.reference.markdown import code, table
from scripts.reference.schema_types import Schema, type_in_words
from throughline.wire.events import EVENTS


def events_parts() -> dict[str, str]:
    """Return the table of events, and the table of the fields of their data."""
    _, schema = models_json_schema([(shape, "serialization") for shape in dict.fromkeys(EVENTS.values())])
    schemas = {event: schema["$defs"][shape.__name__] for event, shape in EVENTS.items()}
    events = ((code(event), _when(found), code(_data(found))) for event, found in schemas.items())
    fields = (row for event, found in schemas.items() for row in _fields(event, found, schema["$defs"]))
    return {
        "events": table(("event", "when", "data"), events),
        "event-fields": table(("event", "field", "value", "meaning"), fields),
    }


def _when(schema: Schema) -> str:
    return " ".join(schema["description"].split())


def _data(schema: Schema) -> str:
    return f"{{{', '.join(schema['properties'])}}}"


def _fields(event: str, schema: Schema, definitions: Schema) -> Iterator[tuple[str, ...]]:
    for name, field in schema["properties"].items():
        yield code(event), code(name), _value(field, definitions), _sentence(field.get("description", ""))


def _value(field: Schema, definitions: Schema) -> str:
    """Return what a field may be. An object is named by its schema in the OpenAPI document."""
    forms = field.get("anyOf", [field])
    is_nullable = {"type": "null"} in forms
    named = [form["$ref"].rpartition("/")[2] for form in forms if "$ref" in form]
    objects = [code(name) for name in named if definitions[name].get("type") == "object"]
    value = objects[0] if objects else type_in_words(field, definitions)
    return f"{value} or `null`" if is_nullable else value


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].removesuffix('.')}." if text else ""
