"""The tools of the MCP server: how they are listed, and how they are called."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel, JsonValue

from throughline.domain.errors import InvalidInput, NotAuthenticated, ThroughlineError
from throughline.domain.message import clean_text
from throughline.http.body import validate
from throughline.http.route_errors import InvalidRequest
from throughline.mcp import ask_agent, history
from throughline.mcp.protocol import INVALID_PARAMS, MAX_SHOWN, ProtocolError
from throughline.mcp.request import NO_META, McpRequest, explain, schema_of
from throughline.mcp.tasks import task_json
from throughline.mcp.tool_result import ToolResult
from throughline.wire.context import SessionContextOut
from throughline.wire.json_shape import JsonDict, Shape


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool. Its description is that of `arguments`. `asks`: it has effects, and a call that takes long is a task."""

    name: str
    title: str
    arguments: type[BaseModel]
    output: type[Shape]
    run: Callable[[McpRequest, Any], Awaitable[ToolResult]]  # Any: an instance of `arguments`
    asks: bool = False


TOOLS = {
    tool.name: tool
    for tool in (
        McpTool(
            "ask_agent",
            "Ask an agent",
            ask_agent.AskAgentArguments,
            ask_agent.AskedTurnOut,
            ask_agent.ask_agent,
            asks=True,
        ),
        McpTool("get_run", "Get a turn", ask_agent.GetRunArguments, ask_agent.AskedTurnOut, ask_agent.get_run),
        McpTool(
            "search_history",
            "Search the history",
            history.SearchHistoryArguments,
            history.FoundMessagesOut,
            history.search_history,
        ),
        McpTool(
            "read_messages",
            "Read messages",
            history.ReadMessagesArguments,
            history.ReadMessagesOut,
            history.read_messages,
        ),
        McpTool(
            "list_sessions",
            "List sessions",
            history.ListSessionsArguments,
            history.ListedSessionsOut,
            history.list_sessions,
        ),
        McpTool(
            "get_context",
            "Get the context of a session",
            history.GetContextArguments,
            SessionContextOut,
            history.get_context,
        ),
    )
}


class CallToolParameters(BaseModel):
    """The tool that a request names, and the arguments that its own model reads later."""

    model_config = NO_META

    name: str
    arguments: dict[str, JsonValue] | None = None


async def list_tools(asked: McpRequest) -> JsonDict:
    """Return all tools; the description of the one that asks names the agents."""
    agents = sorted(asked.call.services.agents.all(), key=lambda agent: agent.name)
    named = "; ".join(f"{one.name}: {one.description}" if one.description else one.name for one in agents)
    return {"tools": [_tool_json(tool, named) for tool in TOOLS.values()]}


def _tool_json(tool: McpTool, agents: str) -> JsonDict:
    described = _described(tool.name)
    if tool.asks:
        described = {**described, "description": f"{described['description']}\n\nAgents: {agents}"}
    return described


@cache
def _described(name: str) -> JsonDict:
    tool = TOOLS[name]
    return {
        "name": name,
        "title": tool.title,
        "description": inspect.getdoc(tool.arguments) or "",
        "inputSchema": schema_of(tool.arguments),
        "outputSchema": schema_of(tool.output, is_output=True),
        "annotations": {
            "title": tool.title,
            "readOnlyHint": not tool.asks,
            "destructiveHint": False,
            "idempotentHint": not tool.asks,
            "openWorldHint": tool.asks,
        },
    }


async def call_tool(asked: McpRequest) -> JsonDict:
    """Return the result of a tool, which may be an error or, for a client with tasks, a task.

    Raises ProtocolError for an unknown tool, NotAuthenticated once the request's key is revoked.
    """
    given = asked.read(CallToolParameters)
    tool = TOOLS.get(given.name)
    if tool is None:
        shown = clean_text(given.name)[:MAX_SHOWN]
        raise ProtocolError(INVALID_PARAMS, f"There is no tool {shown!r}. The tools are: {', '.join(TOOLS)}.")
    try:
        result = await tool.run(asked, validate(given.arguments or {}, tool.arguments))
    except NotAuthenticated:
        raise
    except ThroughlineError as error:
        return ToolResult(None, (_tell(error),), is_error=True).render()
    if tool.asks and result.unfinished is not None and asked.message.takes_tasks:
        return {"resultType": "task", **task_json(result.unfinished)}
    return result.render()


def _tell(error: ThroughlineError) -> str:
    """Return what a model reads of an error: the text that the REST interface has for it, and its code."""
    named = f"{error.field}: " if isinstance(error, InvalidInput) and error.field else ""
    text = explain(error) if isinstance(error, InvalidRequest) else f"{named}{error.detail}"
    return f"{text} (error: {error.code})"
