"""Base class of all JSON shapes, and how ids, times and enumerations are written.

The same fields parse a shape from JSON and render it from a value. `render` validates the value, which costs about 10
µs for a message.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, TypeAlias
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from throughline.domain.basic_types import JsonValue, Page

JsonDict: TypeAlias = dict[str, JsonValue]
Id: TypeAlias = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, UUID) else value),
    WithJsonSchema({"type": "string", "format": "uuid"}),
]
Time: TypeAlias = Annotated[
    AwareDatetime,
    PlainSerializer(datetime.isoformat, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A time, written as `2026-05-04T03:02:01.123456+00:00`."""


class Shape(BaseModel):
    """Base class of JSON objects. Unknown fields are ignored, because the service may be newer than the reader."""

    # Validators are built at first use, because the command line needs few of them.
    # Defaults are for readers of older services. This one writes every field, so that its schema requires them.
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        defer_build=True,
        from_attributes=True,
        json_schema_serialization_defaults_required=True,
    )

    @classmethod
    def render(cls, value: object) -> JsonDict:
        """Return `value`, whose attributes are the fields of this shape, as JSON."""
        return cls.model_validate(value).model_dump(mode="json")

    @classmethod
    def render_all(cls, values: Sequence[object]) -> JsonDict:
        """Return the values as JSON in the form `{data}`."""
        return {"data": [cls.render(value) for value in values]}

    @classmethod
    def render_page(cls, page: Page[Any]) -> JsonDict:
        """Return a page of a list as JSON in the form `{data, next_cursor}`."""
        return {**cls.render_all(page.items), "next_cursor": page.next_cursor}


def one_of(*words: str) -> Any:  # noqa: ANN401  # as pydantic's Field
    """Return a text field whose schema lists `words`. Readers accept other values, from a newer service."""
    return Field(json_schema_extra={"enum": [str(word) for word in words]})
