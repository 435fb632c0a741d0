"""The side jobs that compute missing vectors of memories and of messages, at a limited rate.

Both continue where they stopped: a text that has a vector of the model is not embedded again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from throughline.db.memories import MemoryVectorRepository
from throughline.db.search.message_vectors import MessageVectorRepository
from throughline.db.side_jobs import Job, JobQueue
from throughline.db.usage import UsageRepository
from throughline.domain.basic_types import Clock
from throughline.domain.errors import (
    ModelAuthenticationFailed,
    ModelQuotaExhausted,
    ModelRateLimited,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
    ThroughlineError,
    provider_words,
)
from throughline.domain.recall import Embedder, Vector, VectorKind
from throughline.domain.usage_report import CallPurpose, ModelCall, Payer
from throughline.execution.breaker import Breakers
from throughline.execution.compute_threads import present_owner
from throughline.execution.error_boundary import ErrorBoundary
from throughline.ports.tracing import EmbeddingPart, traced

TIMEOUT_SECONDS = 5.0
"""Time limit for the model while a memory is stored or a search runs."""

PROBE = "How long are the vectors?"


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

    async def embed_in_time(
        self, texts: Sequence[str], seconds: float | None = None, *, is_late_failed: bool = True
    ) -> tuple[Vector, ...]:
        """Return a vector for each text; none if the model fails, is too slow, or its circuit breaker is open.

        `seconds` None is the usual time limit. With `is_late_failed`, being late counts as a failure of the model.
        """
        if not self._breakers.acquire(self.name):
            return ()
        try:
            async with asyncio.timeout(self._dependencies.timeout_seconds if seconds is None else seconds):
                vectors = await self.embed(texts)
        except TimeoutError:
            if is_late_failed:
                self._missed(ModelTimeout("The model did not answer in time."))
            else:
                self._breakers.released(self.name)
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
            return vectors
        return ()

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


BATCH = 16
"""Memories embedded per request: at most 160,000 characters, below the providers' limits."""

KEPT_DAYS = 7
"""Days for which vectors of other models are kept, so that switching back costs nothing."""

ROUND_SECONDS = 10.0
"""Time after which other jobs may run before the next messages are embedded."""

LOCKED_SECONDS = 10.0
"""Pause before messages are read again whose sessions were locked, or had a redaction, when they were to be stored."""

OTHER_MODEL_SECONDS = 60.0
"""Pause before a job may be taken again that names another embedding model than this process uses."""

_NOT_OF_THE_TEXT = (ModelAuthenticationFailed, ModelQuotaExhausted, ModelRateLimited)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rest:
    """The end of a round of a job that is not finished: the pause before its next round.

    `has_failed`: this round achieved nothing.
    """

    pause: timedelta
    has_failed: bool = False


class Pace:
    """Rate limit of requests to the model: consecutive requests are 60 / `calls_per_minute` seconds apart."""

    def __init__(self, clock: Clock, calls_per_minute: int) -> None:
        """Allow the first request at once."""
        self._clock = clock
        self._seconds = 60 / calls_per_minute
        self._next = clock.monotonic()

    @property
    def wait(self) -> timedelta:
        """How long the next request has to wait."""
        return timedelta(seconds=max(0.0, self._next - self._clock.monotonic()))

    async def take(self) -> None:
        """Wait until the next request may be made; the caller must then make it."""
        await self._clock.sleep(self.wait.total_seconds())
        self._next = self._clock.monotonic() + self._seconds


class EmbedMemories:
    """Job that computes the missing vectors of all users' memories.

    At its end, vectors of other models are deleted that are older than KEPT_DAYS.
    """

    def __init__(self, model: EmbeddingModel, vectors: MemoryVectorRepository, pace: Pace) -> None:
        """Embed with `model` and store in `vectors`."""
        self._model = model
        self._vectors = vectors
        self._pace = pace

    async def run(self, subject: str) -> Rest | None:
        """Compute all missing vectors, in batches, and return None. Raises the model's errors.

        `subject` names the model of the job. If it is another model than this process's, nothing is embedded, and the
        pause before the next try is returned.
        """
        if subject != self._model.name:
            return _of_another_model(subject, self._model)
        kind = await _kind_of(self._model, self._pace)
        made, after = 0, None
        while batch := await self._vectors.missing(kind, after, BATCH):
            vectors = await _embed_each(self._model, self._pace, [memory.text for memory in batch])
            stored = [(memory, vector) for memory, vector in zip(batch, vectors, strict=True) if vector is not None]
            if stored:
                await self._vectors.put(kind.model, [memory for memory, _ in stored], [vector for _, vector in stored])
            made, after = made + len(stored), batch[-1].id
        deleted = await self._vectors.delete_others(kind.model, KEPT_DAYS)
        if made or deleted:
            log.info("memories embedded", model=kind.model, memories=made, old_vectors_deleted=deleted)
        return None


class EmbedHistory:
    """Job that computes the missing vectors of the messages of all sessions, newest sessions first.

    At its end, vectors of another model or another length are deleted that are older than KEPT_DAYS.
    """

    def __init__(self, model: EmbeddingModel, vectors: MessageVectorRepository, pace: Pace, clock: Clock) -> None:
        """Embed with `model` and store in `vectors`."""
        self._model = model
        self._vectors = vectors
        self._pace = pace
        self._clock = clock

    async def run(self, subject: str) -> Rest | None:
        """Embed messages for one round of about ROUND_SECONDS.

        Raises the model's errors, except ModelRateLimited. `subject` names the model of the job. Returns the pause
        before the next round, None if no message is left and no request was made. So the next job keeps to the rate,
        too.
        """
        if subject != self._model.name:
            return _of_another_model(subject, self._model)
        done = _Done()
        try:
            return await self._round(done)
        except ModelRateLimited as error:
            return Rest(timedelta(seconds=error.delay_seconds or 0), has_failed=not done.messages)

    async def _round(self, done: "_Done") -> Rest | None:
        kind = await _kind_of(self._model, self._pace)
        ends, newest = self._clock.monotonic() + ROUND_SECONDS, None
        while batch := await self._vectors.missing(kind, newest):
            vectors = await _embed_each(self._model, self._pace, batch.texts) if batch.texts else []
            if not _are_of(kind, vectors):
                return Rest(self._pace.wait)  # the model has changed: its jobs are queued already
            done.left_out += len(batch.reached) - await self._vectors.put(kind, batch, vectors)
            done.messages, newest = done.messages + len(vectors), batch.reached[-1].session_id
            if self._clock.monotonic() + self._pace.wait.total_seconds() >= ends:
                log.info("messages embedded, more follow", model=kind.model, messages=done.messages)
                return Rest(self._pace.wait)
        return await self._finish(kind, done)

    async def _finish(self, kind: VectorKind, done: "_Done") -> Rest | None:
        deleted = await self._vectors.delete_others(kind, KEPT_DAYS)
        if done.messages or deleted:
            log.info(
                "history embedding completed", model=kind.model, messages=done.messages, old_sessions_deleted=deleted
            )
        if done.left_out:
            return Rest(timedelta(seconds=LOCKED_SECONDS))
        return Rest(self._pace.wait) if done.messages else None


@dataclass(slots=True)
class _Done:
    """What a round has done: the messages it embedded, and the sessions that could not be stored."""

    messages: int = 0
    left_out: int = 0


def _of_another_model(subject: str, model: EmbeddingModel) -> Rest:
    log.info("embedding job of another model put back", theirs=subject, ours=model.name)
    return Rest(timedelta(seconds=OTHER_MODEL_SECONDS), has_failed=True)


def _are_of(kind: VectorKind, vectors: Sequence[Vector | None]) -> bool:
    return all(vector is None or len(vector) == kind.dimensions for vector in vectors)


async def _kind_of(model: EmbeddingModel, pace: Pace) -> VectorKind:
    """Return the model's name and the length of its vectors, for which the model is called if it is not known yet."""
    if model.dimensions is None:
        await pace.take()
        await model.embed([PROBE])
    assert model.dimensions is not None  # known after an answer
    return VectorKind(model.name, model.dimensions)


async def _embed_each(model: EmbeddingModel, pace: Pace, texts: Sequence[str]) -> list[Vector | None]:
    """Return a vector for each text, None for one that the model does not embed.

    A batch that fails is halved until the failing texts are found. Raises the model's error if it fails at a harmless
    text, too, or if key, quota or rate is the reason.
    """
    await pace.take()
    try:
        return [*await model.embed(texts)]
    except (ModelRejected, ModelUnavailable) as error:
        if isinstance(error, _NOT_OF_THE_TEXT):
            raise
        await pace.take()
        await model.embed([PROBE])  # raises if the model fails at every text, which ends the job
        if len(texts) == 1:
            log.warning(
                "text refused by embedding model, left without vector",
                model=model.name,
                error=error.code,
                **provider_words(error),
            )
            return [None]
    half = len(texts) // 2
    return [*await _embed_each(model, pace, texts[:half]), *await _embed_each(model, pace, texts[half:])]
