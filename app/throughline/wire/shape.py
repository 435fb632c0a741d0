"""What all shapes have in common: the class they are made of, how times and closed sets are written, pages.

A shape is read by its class and rendered as plain JSON values, by the function that stands below it or beside the value
it shows. Rendering builds no models: a page of 200 messages would take half as long again, and what is stored has been
checked when it was stored. `tests/wire` holds that what a function renders is what its shape says, key for key.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema

from throughline.domain.json_types import JsonValue
from throughline.domain.page import Page

Item = TypeVar("Item")
JsonDict: TypeAlias = dict[str, JsonValue]
Time: TypeAlias = Annotated[
    AwareDatetime,
    PlainSerializer(datetime.isoformat, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A moment, as `2026-05-04T03:02:01.123456+00:00`."""


class Shape(BaseModel):
    """A JSON object. Its reader ignores fields it does not know: the service may be newer than the reader."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)  # the command line needs few of them


def one_of(*words: str) -> Any:  # noqa: ANN401  # as pydantic's Field
    """Return the field of a text that is one of `words`; readers take others too, from a newer service."""
    return Field(json_schema_extra={"enum": [str(word) for word in words]})


def page_json(page: Page[Item], render: Callable[[Item], JsonDict]) -> JsonDict:
    """Return a page of a list as `{data, next_cursor}`."""
    return {"data": [render(item) for item in page.items], "next_cursor": page.next_cursor}


def time_json(time: datetime | None) -> str | None:
    """Return a moment as `Time` is written."""
    return None if time is None else time.isoformat()
