"""One process that embeds messages by the provider double, for tests of the search by meaning."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fakes.provider_double import ProviderDouble
from fakes.provider_double.embeddings import EmbeddingDouble
from fakes.raw_sql import run_sql
from fakes.waiting import ManualClock
from throughline.db.database import Database
from throughline.db.sessions.import_messages import DatedMessage, Imported
from throughline.db.side_jobs import EMBED_HISTORY
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import NewMessage, Role, Source
from throughline.domain.recall import HistoryQuery, SearchResult, VectorKind
from throughline.llm.registry import EmbeddingConfig, LangChainEmbedder, make_embedder
from throughline.turn.recall.embed_missing import EmbeddingDependencies, EmbeddingModel, EmbedHistory, Pace
from throughline.turn.recall.history_search import HistorySearch, MessageVectors

MODEL = "openai:some-model"
VECTORS = "select position, model, dimensions from message_embeddings order by session_id, position, model, dimensions"
CALLS_PER_MINUTE = 60
DIMENSIONS = 1_024
"""Enough for the signs to tell texts that share a word from others."""


@dataclass(frozen=True, slots=True)
class HistoryStage:
    """One process with an embedding model; `provider` is what stands behind it."""

    database: Database
    url: str
    provider: EmbeddingDouble
    embedder: LangChainEmbedder
    model: EmbeddingModel
    embedding: EmbedHistory
    history: HistorySearch
    clock: ManualClock = field(default_factory=ManualClock)

    async def user(self, name: str = "anna") -> UserId:
        return await self.database.users.get_or_create(name)

    async def fill(
        self, *texts: str, user: str = "anna", roles: Sequence[Role] = (), author: str | None = None
    ) -> SessionId:
        """Store a session with these messages, of users if no roles are given."""
        said = zip(texts, roles or [Role.USER] * len(texts), strict=True)
        messages = [DatedMessage(made_message(role, text, author)) for text, role in said]
        new = Imported(await self.user(user), "assistant", "", Source.API, {})
        return (await self.database.sessions.import_conversation(new, messages)).id

    async def embed(self) -> None:
        """Do the job, all rounds of it."""
        while (rest := await self.embedding.run(self.embedder.model)) is not None:
            self.clock.advance(rest.pause.total_seconds())

    async def search(self, query: str, *, user: str = "anna", session_id: SessionId | None = None) -> SearchResult:
        return await self.history.search(await self.user(user), session_id, HistoryQuery(query))

    async def found(self, query: str, *, user: str = "anna") -> tuple[str, list[str]]:
        """Return what was searched by, and the texts found."""
        found = await self.search(query, user=user)
        return found.by, [str(hit.message.content) for hit in found.hits]

    async def vectors(self) -> list[tuple[object, ...]]:
        return await run_sql(self.url, VECTORS)


@asynccontextmanager
async def open_history_stage(
    database: Database,
    url: str,
    double: ProviderDouble,
    *,
    model: str = MODEL,
    calls_per_minute: int = CALLS_PER_MINUTE,
) -> AsyncGenerator[HistoryStage]:
    """Yield a process that has just started."""
    clock, embedder = ManualClock(), make_embedder(EmbeddingConfig(model, double.url))
    meaning = EmbeddingModel(EmbeddingDependencies(embedder, database.jobs, clock, (EMBED_HISTORY,), database.usage))
    embedding = EmbedHistory(meaning, database.message_vectors, Pace(clock, calls_per_minute), clock)
    double.embeddings.dimensions = DIMENSIONS
    history = HistorySearch(database.history, MessageVectors(meaning, database.message_vectors))
    try:
        yield HistoryStage(database, url, double.embeddings, embedder, meaning, embedding, history, clock)
    finally:
        await embedder.close()


def made_message(role: Role, text: str, author: str | None) -> NewMessage:
    is_result = role is Role.TOOL
    call_id, name = ("c1", "tool") if is_result else (None, None)
    return NewMessage(role, text, Source.API, tool_call_id=call_id, name=name, author=author)


CAT, DOG, OSLO = "The cat is called Miso.", "Rex is a dog.", "Anna lives in Oslo."
KIND = VectorKind(MODEL, DIMENSIONS)
