"""Assembly of the memories, with an embedding model if one is configured."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from throughline.assembly.database import is_guest, may_migrate
from throughline.db.database import Database
from throughline.db.jobs.kinds import EMBED_MEMORIES, FIND_UNEMBEDDED
from throughline.db.jobs.queue import Schedule
from throughline.domain.clock import Clock
from throughline.domain.errors import SettingInvalid
from throughline.domain.process import ProcessKind
from throughline.llm.embedding import EmbeddingConfig, LangChainEmbedder, make_embedder
from throughline.memories.embed_memories import EmbeddingDependencies, Meaning
from throughline.memories.memory_service import MemoryService
from throughline.settings import Settings, read_variable
from throughline.worker.jobs import Work

EVERY = timedelta(minutes=5)
"""Interval at which memories without a vector are searched for, in addition to the start and each failure."""


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """The memories, and the jobs and schedules by which a worker maintains them."""

    keeper: MemoryService
    kinds: Mapping[str, Work] = field(default_factory=dict)
    schedules: tuple[Schedule, ...] = ()


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
    )
    try:
        return make_embedder(config)
    except SettingInvalid as error:
        raise SettingInvalid(f"EMBEDDING_MODEL: {error.detail}") from error


@asynccontextmanager
async def open_memories(
    settings: Settings, kind: ProcessKind, database: Database, embedder: LangChainEmbedder | None, clock: Clock
) -> AsyncGenerator[MemoryShare]:
    """Yield the memories. With a model, memories without a vector of that model get one. Raises DatabaseUnusable.

    A command on a server that others operate creates no vectors, because their model may be a different one.
    """
    if embedder is None:
        yield MemoryShare(MemoryService(database.memories))
        return
    try:
        await database.prepare_vectors(may_create=may_migrate(settings, kind))
        meaning = Meaning(EmbeddingDependencies(embedder, database.memory_vectors, database.jobs, clock))
        if not is_guest(settings, kind):
            await meaning.embed_soon()
        keeper = MemoryService(database.memories, meaning)
        yield MemoryShare(
            keeper,
            {EMBED_MEMORIES: meaning.embed_missing},
            (Schedule(FIND_UNEMBEDDED, EVERY, meaning.embed_soon),),
        )
    finally:
        await embedder.close()
