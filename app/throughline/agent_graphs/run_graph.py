"""Running an agent's graph: its messages, state, events and interrupts go through the turn that runs it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

import structlog
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError
from langgraph.types import Command, Interrupt
from pydantic_core import to_jsonable_python

from throughline.agent_graphs.agent_model import SYSTEM_ID, AgentModel, make_tool
from throughline.agent_graphs.checkpoints import RUNNING, GraphProgress, TurnCheckpointer, is_answer
from throughline.agent_graphs.langchain_messages import from_langchain, to_langchain
from throughline.agent_graphs.load_graph import MESSAGES, MODEL, TOOLS, Compiled, Given, load_graph
from throughline.domain.agent_graph import GraphEnd, GraphMessage, GraphStart, Interruption
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import GraphFailed, ThroughlineError
from throughline.domain.message import Role
from throughline.domain.prompt import PromptMessage, ToolSpec
from throughline.execution.error_boundary import ErrorBoundary
from throughline.ports.agent_graphs import GraphHost

MOST_STEPS = 1_000
"""Steps of a graph after which it is taken for one that repeats itself."""

INTERRUPTS = "__interrupt__"
Values: TypeAlias = dict[str, Any]  # Any: the values of other people's states
log = structlog.get_logger(__name__)


class LoadedGraphs:
    """The graphs that were loaded so far."""

    def __init__(self, specs: Callable[[Sequence[str]], Sequence[ToolSpec]]) -> None:
        """`specs` returns the specifications of tools by their names."""
        self._specs = specs
        self._loaded: dict[tuple[str, tuple[str, ...]], Compiled] = {}

    async def run(self, name: str, start: GraphStart, host: GraphHost) -> GraphEnd:
        """Run the graph. Raises as the port `AgentGraphs` says."""
        graph = self.load(name, start.tools)
        messages = [*_system(start.system), *map(to_langchain, start.messages)]
        progress = GraphProgress(name, start, host, {str(one.id): one for one in messages})
        with ErrorBoundary(log.error, "agent graph failed", lets_through=(ThroughlineError,), graph=name) as running:
            values = await _run(graph, progress, _input(start, messages))
            return _end(progress, values, {str(one.id) for one in messages})
        raise _failed(running.error)

    def load(self, name: str, tools: tuple[str, ...]) -> Compiled:
        """Return the graph, made to store its steps with the session. Raises SettingInvalid."""
        if (name, tools) not in self._loaded:
            given: Given = {MODEL: AgentModel, TOOLS: lambda: [make_tool(spec) for spec in self._specs(tools)]}
            graph = load_graph(name, given, tools)
            self._loaded[name, tools] = graph.copy({"checkpointer": TurnCheckpointer(), "store": graph.store})
        return self._loaded[name, tools]


def _system(text: str) -> list[BaseMessage]:
    return [SystemMessage(text, id=SYSTEM_ID)] if text else []


def _input(start: GraphStart, messages: list[BaseMessage]) -> Values | Command[Any] | None:
    """Return what the graph is given: the messages, or what its interrupts wait for, or None to go on."""
    if not start.is_resumed:
        return {MESSAGES: messages}
    return Command(resume=dict(start.answers)) if start.answers else None


async def _run(graph: Compiled, progress: GraphProgress, given: Values | Command[Any] | None) -> Values:
    """Run the graph to its end, or until it waits; return the values of its state."""
    RUNNING.set(progress)
    config: RunnableConfig = {"configurable": {"thread_id": progress.thread_id}, "recursion_limit": MOST_STEPS}
    values: Values = {}
    stream = graph.astream(given, config, stream_mode=["custom", "values"], subgraphs=True, durability="sync")
    assert isinstance(stream, AsyncGenerator)
    async with aclosing(stream) as chunks:
        async for place, mode, chunk in chunks:
            if mode == "custom":
                progress.host.emit(_as_json(chunk))
            elif not place:
                values = chunk
    return values


def _as_json(value: object) -> JsonValue:
    """Return what a node has written to its stream as JSON; what is none becomes its text."""
    made: JsonValue = to_jsonable_python(value, fallback=str, inf_nan_mode="null")
    return made


def _end(progress: GraphProgress, values: Values, given: set[str]) -> GraphEnd:
    interrupts: Sequence[Interrupt[Any]] = values.get(INTERRUPTS, ())
    if interrupts:
        return GraphEnd(interruptions=tuple(map(_interruption, interrupts)), state=progress.as_json())
    last = values.get(MESSAGES, [])[-1:]
    if not last or last[0].id in given or last[0].id == SYSTEM_ID:
        raise GraphFailed("The agent's graph ended without a message of its own.")
    message = last[0] if is_answer(last[0]) else None
    read = from_langchain(last[0] if message is None else message)
    text = PromptMessage(Role.ASSISTANT, "" if read is None else read.content)
    return GraphEnd(GraphMessage(str(last[0].id) if message is not None else "", text))


def _interruption(found: Interrupt[Any]) -> Interruption:
    schema = found.response_schema if isinstance(found.response_schema, dict) else None
    return Interruption(found.id, _as_json(found.value), schema)


def _failed(error: BaseException | None) -> GraphFailed:
    """Return the error that users read."""
    if isinstance(error, GraphRecursionError):
        return GraphFailed(f"The agent's graph made {MOST_STEPS:,} steps and did not end.")
    return GraphFailed(f"The agent's graph failed with {type(error).__name__}. Your message is kept; send it again.")
