"""The graph of one turn: process_message → retrieve_context → save_user_message → llm_node ↔ tool_node."""

import asyncio
from dataclasses import replace
from functools import wraps
from typing import Protocol

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from throughline.agents.definition import ReasoningUse
from throughline.domain.errors import RunAbandoned
from throughline.domain.events import AnswerReset, RunStarted
from throughline.domain.message import text_of
from throughline.domain.run import USER_STEP, Run, user_message
from throughline.domain.summary import Conversation
from throughline.ports.tracing import StepPart, traced
from throughline.turn.daily_budget import check_turn_budget
from throughline.turn.llm_node import llm_node
from throughline.turn.prompting.planning import count_new, tokens_loaded
from throughline.turn.prompting.ready_agent import ReadyAgent, assemble_agent
from throughline.turn.recall_history import Asked, recall_history
from throughline.turn.recall_memories import recall_memories
from throughline.turn.reduce_context import reduce_context
from throughline.turn.run_agent_graph import run_agent_graph
from throughline.turn.state import Turn, TurnState, present
from throughline.turn.store_step import store_step
from throughline.turn.tool_node import has_open_calls, open_calls, tool_node


async def process_message(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Emit `RunStarted`, refuse a run with too many attempts, and set `agent` and `user` in the state.

    Raises RunAbandoned after `max_attempts` attempts, DailyBudgetSpent, DailyBudgetReserved, and SettingInvalid
    if the agent's model is not configured.
    """
    turn, run = runtime.context, state.claimed.run
    _announce(turn, run)
    if run.attempt > turn.dependencies.config.max_attempts:
        raise RunAbandoned(
            f"This message was tried {run.attempt - 1} times, and each time its worker ended before the answer was "
            "complete. Send it again, perhaps changed. The conversation can continue."
        )
    agent = await assemble_agent(turn.dependencies, state.definition, is_resumed=turn.lease.fence > 1)
    if run.attempt == 1 and not run.wait_count:  # after a wait the results are stored first: llm_node checks
        await check_turn_budget(turn.dependencies, agent, run)
    turn.events.shows_reasoning = agent.definition.reasoning is ReasoningUse.SHOW
    return {"agent": agent, "user": user_message(run)}


async def retrieve_context(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Load the session and its newest messages in one query, plan the prompt, and compact if the plan says so.

    These are the messages after the summary's cursor, the last position that the summary covers. Where the prompt does
    not show the whole history, that is searched for what the user's message asks.
    At the same time as the loading, the owner's memories are searched for those that fit the message.

    A failed summary does not fail the turn. The prompt is then trimmed instead; the stored messages do not change.
    """
    turn, agent = runtime.context, present(state.agent)
    user = await count_new(present(state.user), agent.counter)
    run, policy = state.claimed.run, agent.definition.context
    asked = Asked(run.owner_id, run.session_id, text_of(user.content))
    conversation, memories = await asyncio.gather(
        _load(turn, state, agent), recall_memories(turn.dependencies, policy.memories, asked)
    )
    reduced = await reduce_context(turn, agent, conversation, pending=None if conversation.own else user)
    quotations = await recall_history(turn.dependencies, policy.recall, asked, reduced.view)
    return {
        "user": user,
        "conversation": reduced.conversation,
        "stages": reduced.stages,
        "quotations": quotations,
        "memories": () if conversation.session.is_shared else memories,
    }


async def _load(turn: Turn, state: TurnState, agent: ReadyAgent) -> Conversation:
    run = state.claimed.run
    loaded = await turn.dependencies.messages.load_context(run.session_id, run.id, max_tokens=tokens_loaded(agent))
    if state.claimed.is_first_after_wait:  # whatever was begun before the wait is stored
        return loaded
    return replace(loaded, resumed_calls=frozenset(open_call.step for open_call in open_calls(loaded)))


async def save_user_message(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Append the user's message under step `user`, unless an earlier attempt of the run has stored it.

    Raises LeaseLost.
    """
    conversation = present(state.conversation)
    if conversation.own:
        return {}
    stored = await store_step(runtime.context, USER_STEP, present(state.user))
    return {"conversation": conversation.with_own(stored)}


def _announce(turn: Turn, run: Run) -> None:
    """Emit `RunStarted`; before it, `AnswerReset` if this is not the run's first attempt.

    The reset makes readers discard the text of the attempt that died.
    """
    if run.attempt > 1:
        turn.events.emit(AnswerReset(run.attempt))
    turn.events.emit(RunStarted(run))


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
    graph.add_node("agent_graph", _traced("agent_graph", run_agent_graph))
    graph.add_edge(START, "process_message")
    graph.add_edge("process_message", "retrieve_context")
    graph.add_edge("retrieve_context", "save_user_message")
    graph.add_conditional_edges("save_user_message", after_saving, ["tool_node", "llm_node", "agent_graph"])
    graph.add_edge("agent_graph", END)
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
    """Return `agent_graph` for an agent with a graph; `tool_node` for tool calls without results, else `llm_node`."""
    if state.definition.graph:
        return "agent_graph"
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
    """Return the graph's recursion limit: the fixed nodes, two steps for each round that does not wait, and some slack.

    LangGraph's own default is about 10,000 steps.
    """
    return 2 * max_tool_rounds + 10
