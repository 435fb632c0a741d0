"""Servers of tools that are played, in place of those that agents reach by MCP, and calls of real ones."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.elicitation import Elicitation
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.domain.tool_server import ServedCall, ServedTool, ServedTools, ServerReport, ServerState, ToolServer
from throughline.ports.hooks import ToolServers

OPEN_SCHEMA = {"type": "object"}
NIL = UUID(int=0)
CONTEXT = ToolContext(SessionId(NIL), UserId(NIL), RunId(NIL), idempotency_key="run:call")


def served(server: ToolServer, name: str, *, is_repeatable: bool = False, needs_approval: bool = False) -> ServedTool:
    """Return a tool of the server that takes anything."""
    spec = ToolSpec(f"{server.name}__{name}", f"Play {name}.", OPEN_SCHEMA)
    return ServedTool(server, name, spec, is_repeatable=is_repeatable, needs_approval=needs_approval)


async def served_call(servers: ToolServers, server: ToolServer, name: str, **arguments: object) -> ServedCall:
    """Return a call of the server's tool, which is offered."""
    found = await servers.tools_of([server])
    tool = next((tool for tool in found.tools if tool.name == name), None)
    assert tool is not None, found
    return ServedCall(tool, json.dumps(arguments), CONTEXT)


async def outcome_of(servers: ToolServers, call: ServedCall, **changed: object) -> ToolOutcome:
    """Return the outcome of the call, for which the server asks nothing."""
    outcome = await servers.call(replace(call, **changed))  # type: ignore[arg-type]  # fields of ServedCall
    assert isinstance(outcome, ToolOutcome), outcome
    return outcome


@dataclass
class PlayedServers:
    """Tools of servers by the server's name; servers that are not here are away.

    `called` has each call, `asked` the servers that a turn asked for their tools, `patient` whether the last turn would
    have waited for their connections to the end, `kept` those that agents named after they were read again.
    """

    tools: dict[str, list[ServedTool]] = field(default_factory=dict)
    answer: Callable[[ServedCall], ToolOutcome | Elicitation] = lambda call: ToolOutcome(f"{call.tool.name} was played")
    called: list[tuple[str, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    patient: bool = False
    kept: set[str] | None = None

    async def tools_of(self, servers: Sequence[ToolServer], *, is_patient: bool = False) -> ServedTools:
        self.patient = is_patient
        self.asked += [server.name for server in servers]
        return self.known_tools(servers)

    def known_tools(self, servers: Sequence[ToolServer]) -> ServedTools:
        known = [tool for server in servers for tool in self.tools.get(server.name, ())]
        return ServedTools(known, {server.name: "is away" for server in servers if server.name not in self.tools})

    def report(self, server: ToolServer) -> ServerReport:
        known = self.tools.get(server.name)
        return ServerReport(
            server.name,
            ServerState.FAILED if known is None else ServerState.CONNECTED,
            tools=None if known is None else len(known),
        )

    async def keep_only(self, servers: Collection[ToolServer]) -> None:
        self.kept = {server.name for server in servers}

    async def call(self, call: ServedCall) -> ToolOutcome | Elicitation:
        self.called.append((call.tool.name, call.arguments))
        return self.answer(call)
