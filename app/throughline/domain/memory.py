"""Memories: short texts a user keeps, apart from every session. No prompt holds them by itself."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from throughline.domain.ids import MemoryId, UserId
from throughline.domain.json_types import JsonObject

MAX_MEMORY_CHARACTERS = 10_000

FoundBy: TypeAlias = Literal["vector", "text"]
"""`vector`: by meaning and by words, put together; `text`: by words alone."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A kept text; `score` says how well it matches where it was searched for, to compare within one answer only.

    `text_version` counts how often the text was changed: what was made from an earlier one no longer holds.
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
    """What a search found, the best first, and by what."""

    memories: tuple[Memory, ...]
    by: FoundBy
