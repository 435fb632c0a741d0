"""The graphs of agents that are LangGraph graphs, and what such a graph is given by the turn that runs it."""

from collections.abc import Sequence
from typing import Protocol

from throughline.domain.agent_graph import GraphEnd, GraphMessage, GraphModelAnswer, GraphModelCall, GraphStart
from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.message import ToolCall
from throughline.domain.tool import ToolOutcome


class GraphHost(Protocol):
    """The running turn as its graph sees it."""

    async def call_model(self, call: GraphModelCall) -> GraphModelAnswer:
        """Call the agent's model with a prompt that fits its window, and show readers the answer as it is written.

        Raises the errors of a turn's model call.
        """
        ...

    async def call_tool(self, call: ToolCall) -> ToolOutcome:
        """Run one of the tools that the agent's file names."""
        ...

    async def store(self, messages: Sequence[GraphMessage], state: JsonObject) -> None:
        """Store the new messages of a step together with the graph's state. Raises LeaseLost."""
        ...

    def emit(self, data: JsonValue) -> None:
        """Show readers an event that the graph has written to its custom stream."""


class AgentGraphs(Protocol):
    """The graphs that agent files name as `module:attribute`."""

    def check(self, name: str, tools: Sequence[str]) -> None:
        """Raise SettingInvalid unless the graph can be imported and run, with `tools` if the file names any."""

    async def run(self, name: str, start: GraphStart, host: GraphHost) -> GraphEnd:
        """Run the graph until it ends or waits.

        Raises GraphFailed for an error of the graph's own code, and every ThroughlineError that `host` raises.
        """
        ...
