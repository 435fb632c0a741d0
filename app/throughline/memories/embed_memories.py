"""Embeddings of memories: computed when a memory is stored, else later by a side job, and used by searches.

Requests wait only briefly for the model and never fail with it. The job computes missing vectors.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from throughline.db.jobs.kinds import EMBED_MEMORIES
from throughline.db.jobs.queue import Job, JobQueue
from throughline.db.memories.vectors import Kind, MemoryVectorRepository
from throughline.domain.clock import Clock
from throughline.domain.embedding import Embedder, Vector
from throughline.domain.errors import (
    ModelAuthenticationFailed,
    ModelQuotaExhausted,
    ModelRejected,
    ModelTimeout,
    ThroughlineError,
)
from throughline.domain.ids import UserId
from throughline.domain.memory import Memory
from throughline.execution.breaker import Breakers

TIMEOUT_SECONDS = 5.0
"""Time limit for the model while a memory is stored or searched."""

BATCH = 16
"""Memories embedded per request: at most 160,000 characters, below the providers' limits."""

KEPT_DAYS = 7
"""Days for which vectors of other models are kept, so that switching back costs nothing."""

PROBE = "How long are the vectors?"
_UNKNOWN = "?"
_NOT_OF_THE_TEXT = (ModelAuthenticationFailed, ModelQuotaExhausted)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EmbeddingDependencies:
    """The dependencies of Meaning; `timeout_seconds` limits how long a request waits for the model."""

    embedder: Embedder
    vectors: MemoryVectorRepository
    jobs: JobQueue
    clock: Clock
    timeout_seconds: float = TIMEOUT_SECONDS


class Meaning:
    """Computes, stores and compares the vectors of one embedding model."""

    def __init__(self, dependencies: EmbeddingDependencies) -> None:
        """Call nothing yet: the vectors' length is learned from the model's answers."""
        self._dependencies = dependencies
        self._model = dependencies.embedder.model
        self._breakers = Breakers(dependencies.clock)
        self._dimensions: int | None = None

    async def note(self, memory: Memory) -> None:
        """Embed a stored memory, or queue the job that does. Does not raise, because the memory is stored already."""
        vector = await self._ask_with_timeout(memory.text)
        try:
            if vector is not None:
                return await self._dependencies.vectors.put(self._model, [memory], [vector])
        except ThroughlineError as error:
            log.warning("memory vector not stored", memory_id=str(memory.id), error=error.code)
        await self.embed_soon()
        return None

    async def nearest(self, user_id: UserId, query: str, limit: int) -> tuple[Memory, ...]:
        """Return the user's memories nearest in meaning, empty if the model does not answer in time."""
        vector = await self._ask_with_timeout(query)
        if vector is None:
            return ()
        return await self._dependencies.vectors.nearest(user_id, self._model, vector, limit)

    async def embed_soon(self) -> None:
        """Queue the job that computes missing vectors; if that fails, the schedule queues it later."""
        try:
            await self._dependencies.jobs.enqueue(Job(EMBED_MEMORIES, f"{self._model} {self._dimensions or _UNKNOWN}"))
        except ThroughlineError as error:
            log.warning("embedding job not enqueued", kind=EMBED_MEMORIES, error=error.code)

    async def embed_missing(self, subject: str) -> None:
        """Compute all missing vectors, for all users' memories, in batches. This is the side job.

        `subject` is the model's name and its vectors' length if known. Raises the model's errors.
        """
        model, _, dimensions = subject.rpartition(" ")
        if model != self._model:
            log.info("embedding job of another model skipped", theirs=model, ours=self._model)
            return
        if dimensions.isdigit():
            self._dimensions = int(dimensions)
        kind = Kind(model, self._dimensions or len((await self._ask([PROBE]))[0]))
        made, after = 0, None
        while batch := await self._dependencies.vectors.missing(kind, after, BATCH):
            made, after = made + await self._embed(batch), batch[-1].id
        deleted = await self._dependencies.vectors.delete_others(model, KEPT_DAYS)
        if made or deleted:
            log.info("memories embedded", model=model, memories=made, old_vectors_deleted=deleted)

    async def _embed(self, batch: Sequence[Memory]) -> int:
        """Embed a batch; if the model rejects it, embed each memory alone. Return how many have vectors."""
        try:
            vectors = await self._ask([memory.text for memory in batch])
        except ModelRejected as error:
            if isinstance(error, _NOT_OF_THE_TEXT):
                raise
            return await self._embed_apart(batch, error)
        await self._dependencies.vectors.put(self._model, batch, vectors)
        return len(batch)

    async def _embed_apart(self, batch: Sequence[Memory], error: ModelRejected) -> int:
        if len(batch) > 1:
            return sum([await self._embed([memory]) for memory in batch])
        log.warning("memory embedding rejected", memory_id=str(batch[0].id), error=error.code)
        await self._ask([PROBE])  # raises if the model rejects every text, which ends the job
        return 0

    async def _ask_with_timeout(self, text: str) -> Vector | None:
        """Return one text's vector; None if the model fails, is too slow, or its circuit breaker is open."""
        if not self._breakers.acquire(self._model):
            return None
        try:
            async with asyncio.timeout(self._dependencies.timeout_seconds):
                (vector,) = await self._ask([text])
        except TimeoutError:
            self._missed(ModelTimeout.code)
        except ModelRejected as error:
            log.warning("embedding request rejected", model=self._model, error=error.code)
            self._breakers.released(self._model)
        except ThroughlineError as error:
            self._missed(error.code)
        except BaseException:
            self._breakers.released(self._model)
            raise
        else:
            return vector
        return None

    def _missed(self, error: str) -> None:
        self._breakers.failed(self._model)
        log.warning("embedding request failed", model=self._model, error=error)

    async def _ask(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        vectors = await self._dependencies.embedder.embed(texts)
        self._breakers.succeeded(self._model)
        before, self._dimensions = self._dimensions, len(vectors[0])
        if before not in {None, self._dimensions}:
            log.warning("embedding dimensions changed", before=before, now=self._dimensions)
            await self.embed_soon()
        return vectors
