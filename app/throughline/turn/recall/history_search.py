"""Search of the message history by words, and by meaning where messages are embedded."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from throughline.context.quoted_history import LEAST_FULL_SCORE
from throughline.db.reads import HistoryReads, Reading
from throughline.db.search.message_vectors import MessageVectorRepository, NearMessage, SearchScope
from throughline.db.search.repository import SearchRepository
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import ThroughlineError
from throughline.domain.message import Message
from throughline.domain.recall import HistoryQuery, Place, SearchResult, Vector, VectorKind
from throughline.domain.replica import ReplicaAge
from throughline.execution.error_boundary import ErrorBoundary
from throughline.turn.recall.embed_missing import EmbeddingModel
from throughline.turn.recall.memory_service import fuse

DEPTH = 100
"""Messages taken from each ranking before the two are combined; more than a search may return."""

MODEL_SECONDS, QUICK_SECONDS = 2.0, 0.3
"""Time limits for the model: in a search by a user or a tool, and in one before a turn."""

K = 10
MEANING_WEIGHT = 0.5
"""Weight of the order by meaning when both orders are combined with the constant K; the order by words has weight 1.

Measured by benchmarks/retrieval.py: the order by words is the better one, and its first results matter most.
"""

NEAR_DEVIATIONS = 7.0
FEW_NEAR, BEYOND_TYPICAL = 5, 3.0
"""How near in meaning a message must be to be found before a turn without a word in common.

Where more than a few are near, it must be that much nearer than the middle one, too: some models place all texts near
each other.
"""

NEAR_SHARE = 0.6
"""What such a message counts: a share of the score of a message with every word of the query."""

LONG_SESSION_MESSAGES = 1_000
"""Least messages of a session whose searches a replica may answer."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MessageVectors:
    """The embedding model for messages, and the storage of their vectors."""

    model: EmbeddingModel
    repository: MessageVectorRepository | HistoryReads


class HistorySearch:
    """The History port: search by words and meaning. Without an embedding model, or if it fails, words alone decide."""

    def __init__(self, repository: SearchRepository | HistoryReads, vectors: MessageVectors | None = None) -> None:
        """Search in `repository`, and by `vectors` too if there are some."""
        self._repository = repository
        self._vectors = vectors

    async def search_on_replica(
        self, owner_id: UserId, session_id: SessionId | None, query: HistoryQuery, reading: Reading
    ) -> tuple[SearchResult, ReplicaAge | None]:
        """Return what `search` returns, from a replica if `reading` asks one, and the age of its data.

        A replica is asked for searches of all sessions, and of one with LONG_SESSION_MESSAGES.
        """
        if session_id is not None and reading.asks_replica:
            session = await reading.run(lambda each: each.sessions.get(owner_id, session_id))
            if session.message_count < LONG_SESSION_MESSAGES:
                reading.use_primary()
        reads = HistoryReads(self._repository, reading)
        vectors = None if self._vectors is None else replace(self._vectors, repository=reads)
        found = await HistorySearch(reads, vectors).search(owner_id, session_id, query)
        return found, reading.tell_age()

    async def search(self, owner_id: UserId, session_id: SessionId | None, query: HistoryQuery) -> SearchResult:
        """Return the owner's best matching messages. Raises NotFound, InvalidInput; see SearchRepository.search."""
        read = self._repository.parse(query)
        if self._vectors is None or not read.terms:
            return await self._repository.search(owner_id, session_id, query)
        scope = SearchScope(owner_id, session_id, read.only)
        near = asyncio.create_task(self._embed_and_find(scope, read.text))
        try:
            ranked = await self._repository.rank(owner_id, session_id, replace(query, limit=DEPTH))
            nearest = await near
        finally:
            near.cancel()
        if not nearest:
            return await self._repository.search(owner_id, session_id, query)
        fused = fuse((ranked.places, 1.0), ([message.place for message in nearest], MEANING_WEIGHT), k=K)
        hits = await self._repository.show(fused[: query.limit], query)
        return SearchResult(hits, ranked.incomplete_sessions, by="vector")

    async def search_before_turn(
        self, owner_id: UserId, session_id: SessionId, queries: Sequence[HistoryQuery]
    ) -> tuple[SearchResult, ...]:
        """Return the result of each query, an empty one if its search failed. Their texts are embedded by one call.

        Words and meaning make the order, and the words the scores: the n-th hit has the n-th best score. A message
        that is very near in meaning counts NEAR_SHARE at least.
        """
        boundary = partial(ErrorBoundary, log.warning, "history search failed", session_id=str(session_id))

        async def find(query: HistoryQuery) -> SearchResult:
            with boundary():
                return await self._repository.search(owner_id, session_id, query)
            return SearchResult(())

        async def reorder(found: SearchResult, query: HistoryQuery, vector: Vector) -> SearchResult:
            with boundary():
                near = await self._find_near(SearchScope(owner_id, session_id, query.only), vector)
                return await self._reordered(found, near, query)
            return found

        found, embedded = await asyncio.gather(asyncio.gather(*map(find, queries)), self._embed_quickly(queries))
        if embedded:
            found = await asyncio.gather(*map(reorder, found, queries, embedded))
        return tuple(found)

    async def _embed_and_find(self, scope: SearchScope, text: str) -> tuple[NearMessage, ...]:
        """Return the messages nearest in meaning to the text; none if the model or the database fails."""
        embedded = () if self._vectors is None else await self._vectors.model.embed_in_time([text], MODEL_SECONDS)
        return await self._find_near(scope, embedded[0]) if embedded else ()

    async def _find_near(self, scope: SearchScope, vector: Vector) -> tuple[NearMessage, ...]:
        """Return the messages nearest to the vector; none if the database fails."""
        if self._vectors is None:
            return ()
        try:
            kind = VectorKind(self._vectors.model.name, len(vector))
            return await self._vectors.repository.nearest(scope, kind, vector, DEPTH)
        except ThroughlineError as error:
            log.warning("search by meaning failed, searched by words", error=error.code)
            return ()

    async def _embed_quickly(self, queries: Sequence[HistoryQuery]) -> tuple[Vector, ...]:
        """Return a vector for each query; none without a model, if it fails or is late, or if no query has a word."""
        reads = [self._repository.parse(query) for query in queries]
        if self._vectors is None or not any(read.terms for read in reads):
            return ()
        texts = [read.text for read in reads]
        return await self._vectors.model.embed_in_time(texts, QUICK_SECONDS, is_late_failed=False)

    async def _reordered(
        self, found: SearchResult, nearest: Sequence[NearMessage], query: HistoryQuery
    ) -> SearchResult:
        """Return the hits by words and the nearest messages in one order.

        The n-th hit gets the n-th best score by words. A message that is very near counts NEAR_SHARE at least, also if
        it has no word in common.
        """
        if not nearest:
            return found
        by_words = {Place(hit.message.session_id, hit.message.position): hit for hit in found.hits}
        deviations = {message.place: message.deviations for message in nearest}
        fused = fuse((list(by_words), 1.0), (list(deviations), MEANING_WEIGHT), k=K)
        places = [place for place, _ in fused[: query.limit]]
        others = await self._repository.show([(place, 0.0) for place in places if place not in by_words], query)
        hits = by_words | {Place(hit.message.session_id, hit.message.position): hit for hit in others}
        scores = sorted((hit.score for hit in found.hits), reverse=True)
        strong = NEAR_SHARE * max(found.full_score, LEAST_FULL_SCORE)
        typical = nearest[len(nearest) // 2].deviations if len(nearest) > FEW_NEAR else 0.0
        bar = max(NEAR_DEVIATIONS, typical + BEYOND_TYPICAL)
        reordered = []
        for rank, place in enumerate(place for place in places if place in hits):
            score = scores[rank] if rank < len(scores) else 0.0
            is_strong = deviations.get(place, 0.0) >= bar
            reordered.append(replace(hits[place], score=max(score, strong) if is_strong else score))
        return replace(found, hits=tuple(reordered), by="vector")

    async def read(self, owner_id: UserId, session_id: SessionId, first: int, last: int) -> tuple[Message, ...]:
        """Return the messages at positions `first` to `last`, at most one page of the history. Raises NotFound."""
        return await self._repository.read(owner_id, session_id, first, last)
