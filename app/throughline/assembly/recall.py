"""Assembly of memories and search, with an embedding model if one is configured."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from throughline.assembly.database import is_guest, may_migrate
from throughline.db.database import Database
from throughline.db.jobs.kinds import EMBED_HISTORY, EMBED_MEMORIES, FIND_UNEMBEDDED
from throughline.db.jobs.queue import Schedule
from throughline.domain.clock import Clock
from throughline.domain.errors import SettingInvalid
from throughline.domain.process import ProcessKind
from throughline.llm.embedding import EmbeddingConfig, LangChainEmbedder, make_embedder
from throughline.llm.prices import read_prices
from throughline.recall.embed_missing import EmbedHistory, EmbedMemories, Pace
from throughline.recall.embedding_model import EmbeddingDependencies, EmbeddingModel
from throughline.recall.history_search import HistorySearch, MessageVectors
from throughline.recall.memory_service import MemoryService, MemoryVectors
from throughline.settings import Settings, read_variable
from throughline.worker.embedding import embed_in_rounds
from throughline.worker.jobs import Work

EVERY = timedelta(minutes=5)
"""Interval at which texts without a vector are looked for, in addition to the start and each failure."""


@dataclass(frozen=True, slots=True)
class RecallShare:
    """Memories and search of the history, and the jobs and schedules by which a worker embeds both.

    `embed_soon` queues these jobs. It is None without an embedding model, and in a command on a server that others
    operate.
    """

    memories: MemoryService
    history: HistorySearch
    kinds: Mapping[str, Work] = field(default_factory=dict)
    schedules: tuple[Schedule, ...] = ()
    embed_soon: Callable[[], Awaitable[None]] | None = None


def choose_embedder(settings: Settings) -> LangChainEmbedder | None:
    """Return the configured embedding model, None without one. Raises SettingInvalid; needs no database."""
    if not settings.embedding_model:
        return None
    config = EmbeddingConfig(
        settings.embedding_model,
        settings.embedding_base_url or None,
        settings.embedding_dimensions,
        api_key_env=settings.embedding_api_key_env or None,
        read_variable=read_variable,
        prices=read_prices(settings.prices_file),
    )
    try:
        return make_embedder(config)
    except SettingInvalid as error:
        raise SettingInvalid(f"EMBEDDING_MODEL: {error.detail}") from error


@asynccontextmanager
async def open_recall(
    settings: Settings, kind: ProcessKind, database: Database, embedder: LangChainEmbedder | None, clock: Clock
) -> AsyncGenerator[RecallShare]:
    """Yield memories and search. With an embedding model, jobs are queued that embed texts without a vector.

    Raises DatabaseUnusable if vectors cannot be stored. A command on a server that others operate creates no vectors,
    because their model may be a different one.
    """
    if embedder is None:
        yield RecallShare(MemoryService(database.memories), HistorySearch(database.history))
        return
    try:
        await database.prepare_vectors(may_create=may_migrate(settings, kind))
        share = _share_with_vectors(settings, database, embedder, clock)
        if is_guest(settings, kind):
            share = replace(share, embed_soon=None)
        if share.embed_soon is not None:
            await share.embed_soon()
        yield share
    finally:
        await embedder.close()


def _share_with_vectors(
    settings: Settings, database: Database, embedder: LangChainEmbedder, clock: Clock
) -> RecallShare:
    kinds = (EMBED_MEMORIES, EMBED_HISTORY) if settings.embedding_history else (EMBED_MEMORIES,)
    model = EmbeddingModel(EmbeddingDependencies(embedder, database.jobs, clock, kinds, database.usage))
    memories = MemoryService(database.memories, MemoryVectors(model, database.memory_vectors))
    pace = Pace(clock, settings.embedding_calls_per_minute)
    of_memories = EmbedMemories(model, database.memory_vectors, pace)
    work: dict[str, Work] = {EMBED_MEMORIES: partial(embed_in_rounds, of_memories.run)}
    vectors = None
    if settings.embedding_history:
        vectors = MessageVectors(model, database.message_vectors)
        of_history = EmbedHistory(model, database.message_vectors, pace, clock)
        work[EMBED_HISTORY] = partial(embed_in_rounds, of_history.run)
    schedule = Schedule(FIND_UNEMBEDDED, EVERY, model.embed_soon)
    return RecallShare(memories, HistorySearch(database.history, vectors), work, (schedule,), model.embed_soon)
