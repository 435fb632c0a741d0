"""The configured embedding model: requests with a time limit and a circuit breaker, and the jobs that embed texts."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from throughline.db.jobs.queue import Job, JobQueue
from throughline.db.usage import UsageRepository
from throughline.domain.clock import Clock
from throughline.domain.errors import ModelRejected, ModelTimeout, ThroughlineError, provider_words
from throughline.domain.recall import Embedder, Vector
from throughline.domain.usage_report import CallPurpose, ModelCall, Payer
from throughline.execution.breaker import Breakers
from throughline.execution.compute_threads import present_owner
from throughline.execution.error_boundary import ErrorBoundary
from throughline.ports.tracing import EmbeddingPart, traced

TIMEOUT_SECONDS = 5.0
"""Time limit for the model while a memory is stored or a search runs."""

PROBE = "How long are the vectors?"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EmbeddingDependencies:
    """The dependencies of EmbeddingModel.

    `timeout_seconds` limits how long a request waits for the model. `job_kinds` are the jobs that embed texts.
    """

    embedder: Embedder
    jobs: JobQueue
    clock: Clock
    job_kinds: tuple[str, ...]
    usage: UsageRepository
    timeout_seconds: float = TIMEOUT_SECONDS


class EmbeddingModel:
    """The configured embedding model. The length of its vectors is taken from its answers."""

    def __init__(self, dependencies: EmbeddingDependencies) -> None:
        """Keep the dependencies; the model is not called yet."""
        self._dependencies = dependencies
        self._breakers = Breakers(dependencies.clock)
        self._dimensions: int | None = None

    @property
    def name(self) -> str:
        """The model's full name, `provider:model`."""
        return self._dependencies.embedder.model

    @property
    def dimensions(self) -> int | None:
        """The length of the vectors in the model's last answer; None before the first one."""
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return a vector for each text. Raises the model's errors.

        If the vectors have another length than before, the jobs that compute missing vectors are queued.
        """
        with traced(EmbeddingPart(self.name)):
            vectors = await self._dependencies.embedder.embed(texts)
        await self._store_call(texts)
        before, self._dimensions = self._dimensions, len(vectors[0])
        if before not in {None, self._dimensions}:
            log.warning("embedding dimensions changed, texts embedded again", before=before, now=self._dimensions)
            await self.embed_soon()
        return vectors

    async def embed_in_time(self, text: str, seconds: float | None = None) -> Vector | None:
        """Return one text's vector; None if the model fails, is too slow, or its circuit breaker is open."""
        if not self._breakers.acquire(self.name):
            return None
        try:
            async with asyncio.timeout(self._dependencies.timeout_seconds if seconds is None else seconds):
                (vector,) = await self.embed([text])
        except TimeoutError:
            self._missed(ModelTimeout("The model did not answer in time."))
        except ModelRejected as error:
            log.warning("embedding request rejected", model=self.name, error=error.code, **provider_words(error))
            self._breakers.released(self.name)
        except ThroughlineError as error:
            self._missed(error)
        except BaseException:
            self._breakers.released(self.name)
            raise
        else:
            self._breakers.succeeded(self.name)
            return vector
        return None

    async def embed_soon(self) -> None:
        """Queue the jobs that compute missing vectors; if that fails, the schedule queues them later."""
        for kind in self._dependencies.job_kinds:
            try:
                await self._dependencies.jobs.enqueue(Job(kind, self.name))
            except ThroughlineError as error:
                log.warning("embedding job not enqueued, left to the schedule", kind=kind, error=error.code)

    async def _store_call(self, texts: Sequence[str]) -> None:
        """Store what the call used, for the user who waits for it if there is one; if that fails, it is only logged."""
        with ErrorBoundary(log.warning, "model calls not stored", model=self.name):
            usage = await self._dependencies.embedder.usage_of(texts)
            call = ModelCall(self.name, CallPurpose.EMBEDDING, usage)
            await self._dependencies.usage.store_calls(Payer(present_owner()), [call])

    def _missed(self, error: ThroughlineError) -> None:
        self._breakers.failed(self.name)
        log.warning("embedding request failed", model=self.name, error=error.code, **provider_words(error))
