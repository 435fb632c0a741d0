"""Memories: the short texts a user keeps."""

from typing import Annotated

from pydantic import Field, JsonValue

from throughline.domain.memory import FoundMemories, Memory
from throughline.wire.shape import JsonDict, Shape, Time, one_of


class MemoryOut(Shape):
    """A kept text."""

    id: str
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

    data: list[MemoryOut]
    by: Annotated[str, one_of("vector", "text")]


def memory_json(memory: Memory) -> JsonDict:
    """Return a memory as a `MemoryOut`."""
    return {
        "id": str(memory.id),
        "text": memory.text,
        "metadata": dict(memory.metadata),
        "created_at": memory.created_at.isoformat(),
        "updated_at": memory.updated_at.isoformat(),
        "score": memory.score,
    }


def memory_list_json(found: FoundMemories) -> JsonDict:
    """Return what a search found as a `MemoryList`."""
    return {"data": [memory_json(memory) for memory in found.memories], "by": found.by}
