"""Keeping memories and finding them again, for the doors."""

from throughline.db.memories.repository import MemoryChange, MemoryRepository
from throughline.domain.ids import MemoryId, UserId
from throughline.domain.json_types import JsonObject
from throughline.domain.memory import FoundMemories, Memory
from throughline.memories.embed_memories import Meaning
from throughline.memories.fuse_rankings import fuse

DEPTH = 100
"""How far down each ranking is looked at before two are put together; more than a search may ask for."""


class MemoryKeeper:
    """Stores first and embeds then: a model that does not answer loses nothing, and searches go on by words."""

    def __init__(self, repository: MemoryRepository, meaning: Meaning | None = None) -> None:
        """Keep memories in `repository`; without `meaning` they are found by their words alone."""
        self._repository = repository
        self._meaning = meaning

    async def create(self, user_id: UserId, text: str, metadata: JsonObject) -> Memory:
        """Store a memory."""
        memory = await self._repository.create(user_id, text, metadata)
        if self._meaning is not None:
            await self._meaning.note(memory)
        return memory

    async def update(self, user_id: UserId, memory_id: MemoryId, change: MemoryChange) -> Memory:
        """Change what `change` names and return the memory. Raises NotFound."""
        memory = await self._repository.update(user_id, memory_id, change)
        if self._meaning is not None and change.text is not None:
            await self._meaning.note(memory)
        return memory

    async def search(self, user_id: UserId, query: str, limit: int) -> FoundMemories:
        """Return the user's memories that match best, the best first."""
        near = () if self._meaning is None else await self._meaning.nearest(user_id, query, DEPTH)
        if not near:
            return FoundMemories(await self._repository.search(user_id, query, limit), "text")
        by_words = await self._repository.search(user_id, query, DEPTH)
        return FoundMemories(fuse(near, by_words)[:limit], "vector")
