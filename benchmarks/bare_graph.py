"""The measure for `benchmarks.graph_cost`: a graph behind FastAPI with LangGraph's own checkpointer in memory.

Nothing is stored, fitted or streamed to anybody. The service runs the same graph: `make_graph`.
"""

import argparse
import uuid
from typing import Any

import uvicorn
from fastapi import FastAPI
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel

from benchmarks.instant_model import InstantModel

SYSTEM_PROMPT = "You are a helpful assistant."


class Sent(BaseModel):
    """The body of a message."""

    content: str


@tool
def look_up(question: str) -> str:
    """Return what is known of a question."""
    return f"Nothing is known of {question}."


def make_graph(
    model: BaseChatModel, checkpointer: InMemorySaver | None = None
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return an agent with one tool, as LangChain's quickstart makes it."""
    return create_agent(model, [look_up], system_prompt=SYSTEM_PROMPT, checkpointer=checkpointer)


def make_app() -> FastAPI:
    """Return the application."""
    app, graph = FastAPI(), make_graph(InstantModel(), InMemorySaver())

    @app.get("/health/ready")
    async def ready() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/sessions", status_code=201)
    async def create_session() -> dict[str, str]:
        return {"id": str(uuid.uuid4())}

    @app.post("/v1/sessions/{session_id}/messages")
    async def send_message(session_id: uuid.UUID, sent: Sent) -> dict[str, dict[str, str]]:
        config: RunnableConfig = {"configurable": {"thread_id": str(session_id)}}
        ended = await graph.ainvoke({"messages": [HumanMessage(sent.content)]}, config)
        return {"message": {"content": str(ended["messages"][-1].text)}}

    return app


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description="A bare graph to compare with.")
    parser.add_argument("--port", type=int, required=True)
    uvicorn.run(make_app(), host="127.0.0.1", port=parser.parse_args().port, log_level="warning", access_log=False)
