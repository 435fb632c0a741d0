"""The tools of the MCP server: how they are listed, and how they are called."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from throughline.domain.errors import NotAllowed, NotAuthenticated, ThroughlineError
from throughline.domain.keys import Scope
from throughline.domain.message import clean_text
from throughline.http.body import validate
from throughline.mcp_server import ask_agent, history
from throughline.mcp_server.protocol import INVALID_PARAMS, MAX_SHOWN, McpRequest, ProtocolError, ToolResult, explain
from throughline.mcp_server.tasks import task_json
from throughline.wire.context import SessionContextOut
from throughline.wire.json_shape import JsonDict, Shape
from throughline.wire.sessions import SessionPage


class Untitled(GenerateJsonSchema):
    """JSON schemas without titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002  # pydantic's signature
        return False


@dataclass(frozen=True)
class McpTool:
    """A tool with the name of its function. `starts_turn`: a client with tasks gets a task for a long turn.

    Its description is that of `arguments`.
    """

    run: Callable[[McpRequest, Any], Awaitable[ToolResult]]  # Any: an instance of `arguments`
    arguments: type[BaseModel]
    output: type[Shape]
    title: str
    starts_turn: bool = False

    @cached_property
    def description(self) -> JsonDict:
        """The tool as clients list it."""
        return {
            "name": self.run.__name__,
            "title": self.title,
            "description": inspect.getdoc(self.arguments) or "",
            "inputSchema": _schema(self.arguments, is_output=False),
            "outputSchema": _schema(self.output, is_output=True),
            "annotations": {
                "title": self.title,
                "readOnlyHint": not self.starts_turn,
                "destructiveHint": False,
                "idempotentHint": not self.starts_turn,
                "openWorldHint": self.starts_turn,
            },
        }


def _schema(model: type[BaseModel], *, is_output: bool) -> JsonDict:
    """Return the JSON schema without the words of the class, which describe the tool."""
    mode: JsonSchemaMode = "serialization" if is_output else "validation"
    schema: JsonDict = model.model_json_schema(schema_generator=Untitled, mode=mode)
    return {name: value for name, value in schema.items() if name not in {"title", "description"}}


TOOLS = {
    tool.run.__name__: tool
    for tool in (
        McpTool(
            ask_agent.ask_agent, ask_agent.AskAgentArguments, ask_agent.AskedTurnOut, "Ask an agent", starts_turn=True
        ),
        McpTool(ask_agent.get_run, ask_agent.GetRunArguments, ask_agent.AskedTurnOut, "Get a turn"),
        McpTool(history.search_history, history.SearchHistoryArguments, history.FoundMessagesOut, "Search the history"),
        McpTool(history.read_messages, history.ReadMessagesArguments, history.ReadMessagesOut, "Read messages"),
        McpTool(history.list_sessions, history.ListSessionsArguments, SessionPage, "List sessions"),
        McpTool(history.get_context, history.GetContextArguments, SessionContextOut, "Get the context of a session"),
    )
}


async def list_tools(asked: McpRequest) -> JsonDict:
    """Return all tools; the description of `ask_agent` names the agents to those who may list them."""
    try:
        await asked.authorize(Scope.READ, "GET", "/v1/agents")
        agents = asked.call.services.agents.all()
    except NotAllowed:
        return {"tools": [tool.description for tool in TOOLS.values()]}
    named = "; ".join(f"{one.name}: {one.description}" if one.description else one.name for one in agents)
    asking = {"description": f"{inspect.getdoc(ask_agent.AskAgentArguments)}\n\nAgents: {named}"}
    return {"tools": [{**tool.description, **(asking if tool.starts_turn else {})} for tool in TOOLS.values()]}


async def call_tool(asked: McpRequest) -> JsonDict:
    """Return the result of a tool, which may be an error or, for a client with tasks, a task.

    Raises ProtocolError for an unknown tool, NotAuthenticated once the request's key is revoked.
    """
    name, arguments = asked.text("name"), asked.message.params.get("arguments")
    tool = TOOLS.get(name)
    if tool is None:
        shown = clean_text(name)[:MAX_SHOWN]
        raise ProtocolError(INVALID_PARAMS, f"There is no tool {shown!r}. The tools are: {', '.join(TOOLS)}.")
    if not isinstance(arguments, dict | None):
        raise ProtocolError(INVALID_PARAMS, "arguments: Must be a JSON object.")
    try:
        result = await tool.run(asked, validate(arguments or {}, tool.arguments))
    except NotAuthenticated:
        raise
    except ThroughlineError as error:
        return ToolResult(None, (f"{explain(error)} (error: {error.code})",), is_error=True).render()
    if tool.starts_turn and result.unfinished is not None and asked.takes_tasks:
        return {"resultType": "task", **task_json(result.unfinished)}
    return result.render()
