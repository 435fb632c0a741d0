"""Memories with an embedding model: the real one of ours, on the provider double, over a real socket."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fakes.provider_double import ProviderDouble
from fakes.provider_double.embeddings import EmbeddingDouble
from fakes.raw_sql import run_sql
from fakes.waiting import ManualClock
from throughline.db.database import Database
from throughline.db.side_jobs import EMBED_MEMORIES
from throughline.domain.basic_types import UserId
from throughline.llm.registry import EmbeddingConfig, LangChainEmbedder, make_embedder
from throughline.turn.recall.embed_missing import EmbeddingDependencies, EmbeddingModel, EmbedMemories, Pace
from throughline.turn.recall.memory_service import MemoryService, MemoryVectors

MODEL = "openai:some-model"
CALLS_PER_MINUTE = 60
VECTORS = """
    select m.text, e.model, e.dimensions from memory_embeddings e join memories m on m.id = e.memory_id
    where e.text_version = m.text_version order by m.text, e.model
"""


@dataclass(frozen=True, slots=True)
class MemoryStage:
    """One process with an embedding model; `provider` is what stands behind it."""

    database: Database
    url: str
    provider: EmbeddingDouble
    embedder: LangChainEmbedder
    meaning: EmbeddingModel
    embedding: EmbedMemories
    keeper: MemoryService
    clock: ManualClock

    async def user(self, name: str = "anna") -> UserId:
        return await self.database.users.get_or_create(name)

    async def keep(self, *texts: str, user: str = "anna") -> None:
        owner = await self.user(user)
        for text in texts:
            await self.keeper.create(owner, text, {})

    async def found(self, query: str, *, user: str = "anna") -> tuple[str, list[str]]:
        """Return what was searched by, and the texts found."""
        found = await self.keeper.search(await self.user(user), query, 10)
        return found.by, [memory.text for memory in found.memories]

    async def vectors(self) -> list[tuple[object, ...]]:
        """Return text, model and dimensions of every vector that holds."""
        return await run_sql(self.url, VECTORS)

    async def do_job(self) -> None:
        await self.embedding.run(self.embedder.model)


@asynccontextmanager
async def open_memory_stage(
    database: Database, url: str, double: ProviderDouble, *, model: str = MODEL, timeout_seconds: float = 5.0
) -> AsyncGenerator[MemoryStage]:
    """Yield a process that has just started; its job is in line and not done."""
    await database.prepare_vectors(may_create=True)
    clock, embedder = ManualClock(), make_embedder(EmbeddingConfig(model, double.url))
    parts = EmbeddingDependencies(embedder, database.jobs, clock, (EMBED_MEMORIES,), database.usage, timeout_seconds)
    meaning = EmbeddingModel(parts)
    keeper = MemoryService(database.memories, MemoryVectors(meaning, database.memory_vectors))
    embedding = EmbedMemories(meaning, database.memory_vectors, Pace(clock, CALLS_PER_MINUTE))
    try:
        await meaning.embed_soon()
        yield MemoryStage(database, url, double.embeddings, embedder, meaning, embedding, keeper, clock)
    finally:
        await embedder.close()
