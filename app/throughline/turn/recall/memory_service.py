"""Storage and search of memories, for the interfaces."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog

from throughline.db.memories import MemoryChange, MemoryRepository, MemoryVectorRepository
from throughline.domain.basic_types import JsonObject, MemoryId, UserId
from throughline.domain.errors import ThroughlineError
from throughline.domain.recall import FoundMemories, Memory
from throughline.turn.recall.embed_missing import EmbeddingModel

# Combination of search rankings by rank alone, since scores of different searches are not comparable.
#
# Reciprocal rank fusion: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual
# Rank Learning Methods", SIGIR 2009.

DIGITS = 6
"""Decimal places of a fused score."""

Found = TypeVar("Found", bound=Hashable)


def fuse(*rankings: tuple[Sequence[Found], float], k: float) -> list[tuple[Found, float]]:
    """Return everything found once, best first, with its score: the sum of weight / (k + rank) over the rankings.

    A ranking comes with its weight. Of equal scores the one named first comes first.
    """
    scores: dict[Found, float] = {}
    for ranking, weight in rankings:
        for rank, found in enumerate(ranking, start=1):
            scores[found] = scores.get(found, 0.0) + weight / (k + rank)
    return [(found, round(score, DIGITS)) for found, score in sorted(scores.items(), key=lambda item: -item[1])]


DEPTH = 100
"""Results taken from each ranking before two are combined; more than a search may return."""

K = 60
"""The constant of reciprocal rank fusion, as in that paper."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryVectors:
    """The embedding model for memories, and the storage of their vectors."""

    model: EmbeddingModel
    repository: MemoryVectorRepository


class MemoryService:
    """Storage and search of memories. A memory is stored before it is embedded.

    If the embedding model fails, nothing is lost: the vector is computed later, and searches use words.
    """

    def __init__(self, repository: MemoryRepository, vectors: MemoryVectors | None = None) -> None:
        """Store memories in `repository`; without `vectors` they are searched by words only."""
        self._repository = repository
        self._vectors = vectors

    async def create(self, user_id: UserId, text: str, metadata: JsonObject) -> Memory:
        """Store a memory and return it. With an embedding model, its vector is computed at once or by a job."""
        memory = await self._repository.create(user_id, text, metadata)
        if self._vectors is not None:
            await _embed(self._vectors, memory)
        return memory

    async def update(self, user_id: UserId, memory_id: MemoryId, change: MemoryChange) -> Memory:
        """Apply the change and return the memory. Raises NotFound."""
        memory = await self._repository.update(user_id, memory_id, change)
        if self._vectors is not None and change.text is not None:
            await _embed(self._vectors, memory)
        return memory

    async def delete(self, user_id: UserId, memory_id: MemoryId) -> None:
        """Delete the user's memory with this id. Raises NotFound."""
        await self._repository.delete(user_id, memory_id)

    async def delete_text(self, user_id: UserId, text: str) -> int:
        """Delete the user's memories with exactly this text; return how many there were."""
        return await self._repository.delete_text(user_id, text)

    async def find_fitting(self, user_id: UserId, message: str, limit: int) -> tuple[Memory, ...]:
        """Return up to `limit` memories of the user that fit the message, best first.

        They are found by words alone, so that a turn waits for no embedding model.
        """
        return await self._repository.find_fitting(user_id, message, limit)

    async def search(self, user_id: UserId, query: str, limit: int) -> FoundMemories:
        """Return the user's best matching memories, best first: by words, and by meaning if the model is in time."""
        near = () if self._vectors is None else await _nearest(self._vectors, user_id, query)
        if not near:
            return FoundMemories(await self._repository.search(user_id, query, limit), "text")
        by_words = await self._repository.search(user_id, query, DEPTH)
        known = {memory.id: memory for memory in (*by_words, *near)}
        fused = fuse(([memory.id for memory in near], 1.0), ([memory.id for memory in by_words], 1.0), k=K)
        return FoundMemories(tuple(replace(known[found], score=score) for found, score in fused[:limit]), "vector")


async def _embed(vectors: MemoryVectors, memory: Memory) -> None:
    """Embed a stored memory, or queue the jobs that do. Does not raise, because the memory is stored already."""
    embedded = await vectors.model.embed_in_time([memory.text])
    try:
        if embedded:
            return await vectors.repository.put(vectors.model.name, [memory], embedded)
    except ThroughlineError as error:
        log.warning("memory vector not stored, embedded again later", memory_id=str(memory.id), error=error.code)
    return await vectors.model.embed_soon()


async def _nearest(vectors: MemoryVectors, user_id: UserId, query: str) -> tuple[Memory, ...]:
    """Return the user's memories nearest in meaning, empty if the model does not answer in time."""
    embedded = await vectors.model.embed_in_time([query])
    if not embedded:
        return ()
    return await vectors.repository.nearest(user_id, vectors.model.name, embedded[0], DEPTH)
