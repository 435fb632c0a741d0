"""Memories: short texts that a user stores independently of sessions. No prompt includes them automatically."""

from dataclasses import dataclass
from datetime import datetime

from throughline.domain.ids import MemoryId, UserId
from throughline.domain.json_types import JsonObject
from throughline.domain.recall import FoundBy

MAX_MEMORY_CHARACTERS = 10_000


@dataclass(frozen=True, slots=True)
class Memory:
    """A stored memory; `score` is its match in a search, comparable only within one search result.

    `text_version` counts changes of the text, so that data derived from an earlier text can be recognised as outdated.
    """

    id: MemoryId
    user_id: UserId
    text: str
    metadata: JsonObject
    created_at: datetime
    updated_at: datetime
    score: float | None = None
    text_version: int = 0


@dataclass(frozen=True, slots=True)
class FoundMemories:
    """The result of a memory search, best match first, and how it was searched."""

    memories: tuple[Memory, ...]
    by: FoundBy
