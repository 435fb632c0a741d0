"""JSON shapes of memories, the short texts that a user stores."""

from typing import Annotated

from pydantic import AliasChoices, Field, JsonValue

from throughline.wire.json_shape import Id, Shape, Time, one_of


class MemoryOut(Shape):
    """A memory: a short text that a user stored."""

    id: Id
    text: str
    metadata: dict[str, JsonValue]
    created_at: Time
    updated_at: Time
    score: float | None = Field(description="only in search results; comparable within one response")


class MemoryPage(Shape):
    """A page of memories, newest first."""

    data: list[MemoryOut]
    next_cursor: str | None


class MemoryList(Shape):
    """Memories found by a search, the best match first.

    `by` is how they were found: by meaning and words together, or by words alone.
    """

    data: list[MemoryOut] = Field(validation_alias=AliasChoices("data", "memories"))
    by: Annotated[str, one_of("vector", "text")]
