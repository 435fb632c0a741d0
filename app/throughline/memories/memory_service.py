"""Storage and search of memories, for the interfaces."""

from throughline.db.memories.repository import MemoryChange, MemoryRepository
from throughline.domain.ids import MemoryId, UserId
from throughline.domain.json_types import JsonObject
from throughline.domain.memory import FoundMemories, Memory
from throughline.memories.embed_memories import Meaning
from throughline.memories.fuse_rankings import fuse

DEPTH = 100
"""Results taken from each ranking before two are combined; more than a search may return."""


class MemoryService:
    """Stores memories before embedding them: if the model fails, nothing is lost and searches use words."""

    def __init__(self, repository: MemoryRepository, meaning: Meaning | None = None) -> None:
        """Store memories in `repository`; without `meaning` they are searched by words only."""
        self._repository = repository
        self._meaning = meaning

    async def create(self, user_id: UserId, text: str, metadata: JsonObject) -> Memory:
        """Store a memory."""
        memory = await self._repository.create(user_id, text, metadata)
        if self._meaning is not None:
            await self._meaning.note(memory)
        return memory

    async def update(self, user_id: UserId, memory_id: MemoryId, change: MemoryChange) -> Memory:
        """Apply the change and return the memory. Raises NotFound."""
        memory = await self._repository.update(user_id, memory_id, change)
        if self._meaning is not None and change.text is not None:
            await self._meaning.note(memory)
        return memory

    async def search(self, user_id: UserId, query: str, limit: int) -> FoundMemories:
        """Return the user's best matching memories, best first."""
        near = () if self._meaning is None else await self._meaning.nearest(user_id, query, DEPTH)
        if not near:
            return FoundMemories(await self._repository.search(user_id, query, limit), "text")
        by_words = await self._repository.search(user_id, query, DEPTH)
        return FoundMemories(fuse(near, by_words)[:limit], "vector")
