"""Search of the message history by words, and by meaning where messages are embedded."""

import asyncio
from dataclasses import dataclass, replace

import structlog

from throughline.db.search.message_vectors import MessageVectorRepository, SearchScope
from throughline.db.search.query import ReadQuery
from throughline.db.search.repository import SearchRepository
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import ThroughlineError
from throughline.domain.message import Message
from throughline.domain.recall import HistoryQuery, Place, SearchResult, VectorKind
from throughline.turn.recall.embed_missing import EmbeddingModel
from throughline.turn.recall.memory_service import fuse

DEPTH = 100
"""Messages taken from each ranking before the two are combined; more than a search may return."""

MODEL_SECONDS = 2.0
"""Time limit for the model while a search waits."""

K = 10
MEANING_WEIGHT = 0.5
"""Weight of the order by meaning when both orders are combined with the constant K; the order by words has weight 1.

Measured by benchmarks/retrieval.py: the order by words is the better one, and its first results matter most.
"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MessageVectors:
    """The embedding model for messages, and the storage of their vectors."""

    model: EmbeddingModel
    repository: MessageVectorRepository


class HistorySearch:
    """The History port: search by words and meaning. Without an embedding model, or if it fails, words alone decide."""

    def __init__(self, repository: SearchRepository, vectors: MessageVectors | None = None) -> None:
        """Search in `repository`, and by `vectors` too if there are some."""
        self._repository = repository
        self._vectors = vectors

    async def search(self, owner_id: UserId, session_id: SessionId | None, query: HistoryQuery) -> SearchResult:
        """Return the owner's best matching messages. Raises NotFound, InvalidInput; see SearchRepository.search.

        The search before a turn (`is_quick`) is by words alone, so that it waits for no model.
        """
        read = self._repository.parse(query)
        if self._vectors is None or query.is_quick or not read.terms:
            return await self._repository.search(owner_id, session_id, query)
        near = asyncio.create_task(_nearest(self._vectors, SearchScope(owner_id, session_id, read.only), read))
        try:
            ranked = await self._repository.rank(owner_id, session_id, replace(query, limit=DEPTH))
            nearest = await near
        finally:
            near.cancel()
        if not nearest:
            return await self._repository.search(owner_id, session_id, query)
        fused = fuse((ranked.places, 1.0), (nearest, MEANING_WEIGHT), k=K)
        hits = await self._repository.show(fused[: query.limit], query)
        return SearchResult(hits, ranked.incomplete_sessions, by="vector")

    async def read(self, owner_id: UserId, session_id: SessionId, first: int, last: int) -> tuple[Message, ...]:
        """Return the messages at positions `first` to `last`, at most one page of the history. Raises NotFound."""
        return await self._repository.read(owner_id, session_id, first, last)


async def _nearest(vectors: MessageVectors, scope: SearchScope, read: ReadQuery) -> tuple[Place, ...]:
    """Return session and position of the messages nearest in meaning; empty if the model or the database fails."""
    vector = await vectors.model.embed_in_time(read.text, MODEL_SECONDS)
    if vector is None:
        return ()
    kind = VectorKind(vectors.model.name, len(vector))
    try:
        return await vectors.repository.nearest(scope, kind, vector, DEPTH)
    except ThroughlineError as error:
        log.warning("search by meaning failed, searched by words", error=error.code)
        return ()
