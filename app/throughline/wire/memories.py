"""Memories: the short texts a user keeps."""

from typing import Annotated

from pydantic import AliasChoices, Field, JsonValue

from throughline.wire.shape import Id, Shape, Time, one_of


class MemoryOut(Shape):
    """A kept text."""

    id: Id
    text: str
    metadata: dict[str, JsonValue]
    created_at: Time
    updated_at: Time
    score: float | None = Field(description="set where it was searched for, to compare within one answer only")


class MemoryPage(Shape):
    """Memories, newest first."""

    data: list[MemoryOut]
    next_cursor: str | None


class MemoryList(Shape):
    """Memories, the best match first, and what they were found by: meaning and words together, or words alone."""

    data: list[MemoryOut] = Field(validation_alias=AliasChoices("data", "memories"))
    by: Annotated[str, one_of("vector", "text")]
