"""The graph of one turn: process_message → retrieve_context → save_user_message → llm_node ↔ tool_node."""

from functools import wraps
from typing import Protocol

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from throughline.ports.tracing import StepPart, traced
from throughline.turn.llm_node import llm_node
from throughline.turn.process_message import process_message
from throughline.turn.retrieve_context import retrieve_context
from throughline.turn.save_user_message import save_user_message
from throughline.turn.state import Turn, TurnState, present
from throughline.turn.tool_node import has_open_calls, tool_node

TurnGraph = CompiledStateGraph[TurnState, Turn, TurnState, TurnState]


class Node(Protocol):
    """A node's function. LangGraph finds its parameters by their names."""

    async def __call__(self, state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
        """Return the new fields of the state."""


def build_graph() -> TurnGraph:
    """Build and compile the graph. It holds no state, so that one graph serves all turns of the process.

    All its functions are async, because LangGraph runs synchronous ones in a thread.
    """
    graph = StateGraph(TurnState, context_schema=Turn)
    graph.add_node("process_message", _traced("process_message", process_message))
    graph.add_node("retrieve_context", _traced("retrieve_context", retrieve_context))
    graph.add_node("save_user_message", _traced("save_user_message", save_user_message))
    graph.add_node("llm_node", _traced("llm_node", llm_node))
    graph.add_node("tool_node", _traced("tool_node", tool_node))
    graph.add_edge(START, "process_message")
    graph.add_edge("process_message", "retrieve_context")
    graph.add_edge("retrieve_context", "save_user_message")
    graph.add_conditional_edges("save_user_message", after_saving, ["tool_node", "llm_node"])
    graph.add_conditional_edges("llm_node", after_answering, ["tool_node", "llm_node", END])
    graph.add_conditional_edges("tool_node", after_tools, ["llm_node", END])
    return graph.compile()


def _traced(name: str, node: Node) -> Node:
    step = StepPart(name)

    @wraps(node)
    async def run(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
        with traced(step):
            return await node(state, runtime)

    return run


async def after_saving(state: TurnState) -> str:
    """Return `tool_node` if a resumed run has tool calls without results, else `llm_node`."""
    return "tool_node" if has_open_calls(present(state.conversation)) else "llm_node"


async def after_answering(state: TurnState) -> str:
    """Return END after an answer, and `tool_node` after a step with tool calls.

    After an answer that was not accepted, return `llm_node`, which asks again.
    """
    if state.answer is not None:
        return END
    return "tool_node" if has_open_calls(present(state.conversation)) else "llm_node"


async def after_tools(state: TurnState) -> str:
    """Return END if calls wait for something from outside, else `llm_node`."""
    return END if state.waiting else "llm_node"


def step_limit(max_tool_rounds: int) -> int:
    """Return the graph's recursion limit: the fixed nodes, two steps per tool round, and some slack.

    LangGraph's own default is about 10,000 steps.
    """
    return 2 * max_tool_rounds + 10
