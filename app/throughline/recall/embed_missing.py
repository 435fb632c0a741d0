"""The side jobs that embed texts without a vector: memories at once, messages at a limited rate.

Both continue where they stopped: what has a vector of the model is not asked for again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from throughline.db.memories.vectors import MemoryVectorRepository
from throughline.db.search.message_vectors import MessageVectorRepository
from throughline.domain.clock import Clock
from throughline.domain.embedding import Vector
from throughline.domain.errors import ModelAuthenticationFailed, ModelQuotaExhausted, ModelRejected
from throughline.recall.embedding_model import PROBE, EmbeddingModel

BATCH = 16
"""Memories embedded per request: at most 160,000 characters, below the providers' limits."""

KEPT_DAYS = 7
"""Days for which vectors of other models are kept, so that switching back costs nothing."""

ROUND_SECONDS = 10.0
"""Time after which other jobs may run before the next messages are embedded."""

_NOT_OF_THE_TEXT = (ModelAuthenticationFailed, ModelQuotaExhausted)
log = structlog.get_logger(__name__)


class EmbedMemories:
    """Embedding of all users' memories."""

    def __init__(self, model: EmbeddingModel, vectors: MemoryVectorRepository) -> None:
        """Embed with `model` and store in `vectors`."""
        self._model = model
        self._vectors = vectors

    async def run(self, subject: str) -> None:
        """Compute all missing vectors, in batches. `subject` is the job's. Raises the model's errors."""
        kind = await self._model.kind_of_job(subject)
        if kind is None:
            return
        made, after = 0, None
        while batch := await self._vectors.missing(kind, after, BATCH):
            vectors = await _embed_each(self._model, [memory.text for memory in batch])
            stored = [(memory, vector) for memory, vector in zip(batch, vectors, strict=True) if vector is not None]
            if stored:
                await self._vectors.put(kind.model, [memory for memory, _ in stored], [vector for _, vector in stored])
            made, after = made + len(stored), batch[-1].id
        deleted = await self._vectors.delete_others(kind.model, KEPT_DAYS)
        if made or deleted:
            log.info("memories embedded", model=kind.model, memories=made, old_vectors_deleted=deleted)


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit of requests per minute, and the clock that measures it."""

    calls_per_minute: int
    clock: Clock

    @property
    def calls_per_round(self) -> int:
        """Requests after which a round of ROUND_SECONDS ends, at least one."""
        return max(1, int(self.calls_per_minute * ROUND_SECONDS / 60))

    def pause(self, calls: int, seconds: float) -> timedelta:
        """Return the pause after which this many calls, made in `seconds`, keep to the rate."""
        return timedelta(seconds=max(0.0, calls * 60 / self.calls_per_minute - seconds))


class EmbedHistory:
    """Embedding of the messages of all sessions, newest sessions first, at a limited rate."""

    def __init__(self, model: EmbeddingModel, vectors: MessageVectorRepository, rate: Rate) -> None:
        """Embed with `model` and store in `vectors`."""
        self._model = model
        self._vectors = vectors
        self._rate = rate

    async def run(self, subject: str) -> timedelta | None:
        """Embed messages for one round. `subject` is the job's. Raises the model's errors.

        Returns the pause before the next round, None if no message is left.
        """
        kind = await self._model.kind_of_job(subject)
        if kind is None:
            return None
        started, before, made, newest = self._rate.clock.monotonic(), self._model.requests, 0, None
        while batch := await self._vectors.missing(kind, newest):
            vectors = await _embed_each(self._model, batch.texts) if batch.texts else []
            await self._vectors.put(kind, batch, vectors)
            made, newest = made + len(vectors), batch.reached[-1].session_id
            if (calls := self._model.requests - before) >= self._rate.calls_per_round:
                log.info("messages embedded", model=kind.model, messages=made, calls=calls)
                return self._rate.pause(calls, self._rate.clock.monotonic() - started)
        deleted = await self._vectors.delete_others(kind, KEPT_DAYS)
        if made or deleted:
            log.info("history embedded", model=kind.model, messages=made, old_sessions_deleted=deleted)
        return None


async def _embed_each(model: EmbeddingModel, texts: Sequence[str]) -> list[Vector | None]:
    """Return a vector for each text, None for one that the model rejects. Rejected batches are halved."""
    try:
        return [*await model.embed(texts)]
    except ModelRejected as error:
        if isinstance(error, _NOT_OF_THE_TEXT):
            raise
        if len(texts) == 1:
            log.warning("text not embedded", model=model.name, error=error.code)
            await model.embed([PROBE])  # raises if the model rejects every text, which ends the job
            return [None]
    half = len(texts) // 2
    return [*await _embed_each(model, texts[:half]), *await _embed_each(model, texts[half:])]
