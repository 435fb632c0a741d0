"""The measure for `benchmarks.throughput`: a chat turn of FastAPI, LangGraph and asyncpg with none of our features.

Without `--model-url` it has the model of `benchmarks.instant_model`. No summaries, no windows, no queue, no events, no
leases: the user's row, the whole history, one streamed model call, the answer's row.
"""

import argparse
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import uvicorn
from fastapi import FastAPI
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, SecretStr

from benchmarks.instant_model import InstantModel
from benchmarks.processes import MODEL
from throughline.db.connection.address import parse_address

POOL_SIZE = 10
SCHEMA = """
create table if not exists bare_messages (
    id bigint generated always as identity primary key,
    session_id uuid not null,
    role text not null,
    content text not null,
    created_at timestamptz not null default now()
);
create index if not exists bare_messages_session on bare_messages (session_id, id);
"""
INSERT = "insert into bare_messages (session_id, role, content) values ($1, $2, $3)"


class Sent(BaseModel):
    """The body of a message."""

    content: str


class State(TypedDict):
    """What the graph carries."""

    session_id: uuid.UUID
    content: str
    history: list[BaseMessage]
    answer: str


class Bare:
    """The two nodes and what they need."""

    def __init__(self, pool: asyncpg.Pool, model: BaseChatModel) -> None:
        """Build the graph."""
        self._pool, self._model = pool, model
        graph = StateGraph(State)
        graph.add_node("retrieve", self.retrieve)
        graph.add_node("answer", self.answer)
        graph.add_edge(START, "retrieve")
        graph.add_edge("retrieve", "answer")
        graph.add_edge("answer", END)
        self._graph = graph.compile()

    async def turn(self, session_id: uuid.UUID, content: str) -> str:
        """Run one turn."""
        given = State(session_id=session_id, content=content, history=[], answer="")
        ended = await self._graph.ainvoke(given)
        answer: str = ended["answer"]
        return answer

    async def retrieve(self, state: State) -> dict[str, object]:
        """Insert the user's row and read the history."""
        async with self._pool.acquire() as connection:
            await connection.execute(INSERT, state["session_id"], "user", state["content"])
            rows = await connection.fetch(
                "select role, content from bare_messages where session_id = $1 order by id", state["session_id"]
            )
        history = [(HumanMessage if row["role"] == "user" else AIMessage)(row["content"]) for row in rows]
        return {"history": history}

    async def answer(self, state: State) -> dict[str, object]:
        """Stream the model's answer and insert its row."""
        pieces = [str(chunk.content) async for chunk in self._model.astream(state["history"])]
        text = "".join(pieces)
        async with self._pool.acquire() as connection:
            await connection.execute(INSERT, state["session_id"], "assistant", text)
        return {"answer": text}


def make_app(options: argparse.Namespace) -> FastAPI:
    """Return the application."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        address = parse_address(options.database_url).arguments()
        async with asyncpg.create_pool(**address, min_size=POOL_SIZE, max_size=POOL_SIZE) as pool:
            await pool.execute(SCHEMA)
            app.state.bare = Bare(pool, _model(options))
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/health/ready")
    async def ready() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/sessions", status_code=201)
    async def create_session() -> dict[str, str]:
        return {"id": str(uuid.uuid4())}

    @app.post("/v1/sessions/{session_id}/messages")
    async def send_message(session_id: uuid.UUID, sent: Sent) -> dict[str, dict[str, str]]:
        return {"message": {"content": await app.state.bare.turn(session_id, sent.content)}}

    return app


def _model(options: argparse.Namespace) -> BaseChatModel:
    if not options.model_url:
        return InstantModel()
    return ChatOpenAI(model=MODEL, base_url=options.model_url, api_key=SecretStr("benchmark"), max_retries=0)


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description="A bare chat service to compare with.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--model-url", default="", help="without it, answer at once")
    options = parser.parse_args()
    uvicorn.run(make_app(options), host="127.0.0.1", port=options.port, log_level="warning", access_log=False)
