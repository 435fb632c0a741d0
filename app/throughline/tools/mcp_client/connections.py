"""Implementation of the `ToolServers` port: one connection per server and process, made when it is first needed.

Nothing of the package `mcp` is imported before that, because the import takes most of a second.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Self

from throughline.domain.elicitation import Elicitation
from throughline.domain.message import clean_text
from throughline.domain.tool import ToolOutcome, is_json_object
from throughline.domain.tool_server import ServedCall, ServedTools, ServerReport, ServerState, ToolServer
from throughline.execution.error_boundary import Raised, outcome_of_awaiting
from throughline.tools.make_function_tool import CallLimits, ToolFailed, failed, failure_for_model
from throughline.tools.mcp_client.bounds import Bounds, NotConnected
from throughline.tools.mcp_client.choose_tools import NO_TOOL_LIST, ToolList, choose_tools

if TYPE_CHECKING:
    from throughline.tools.mcp_client.connection import Connection


class McpConnections:
    """Connections to the servers of all agents. As an async context manager it closes them at its exit."""

    def __init__(
        self, read_variable: Callable[[str], str], max_result_bytes: int, *, bounds: Bounds | None = None
    ) -> None:
        """Connect nothing yet. `read_variable` returns a variable of the environment, '' if it is not set."""
        self._read_variable = read_variable
        self._max_result_bytes = max_result_bytes
        self._bounds = bounds or Bounds()
        self._connections: dict[ToolServer, Connection] = {}
        self._starting = asyncio.Lock()
        self._class: type[Connection] | None = None
        self._named: frozenset[ToolServer] | None = None
        self._ending: set[Connection] = set()
        self._missing = ""
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        await _close({*self._connections.values(), *self._ending})

    async def tools_of(self, servers: Sequence[ToolServer], *, is_patient: bool = False) -> ServedTools:
        """Return the tools of the servers. One that cannot be reached in time is a problem, not an error.

        With `is_patient` an attempt to connect is waited for until it ends.
        """
        lists = await asyncio.gather(*(self._tool_list(server, is_patient=is_patient) for server in servers))
        return choose_tools(zip(servers, lists, strict=True))

    def known_tools(self, servers: Sequence[ToolServer]) -> ServedTools:
        """Return the tools that the servers listed last. None is connected; one without a list is a problem."""
        return choose_tools((server, self._known(server)) for server in servers)

    def report(self, server: ToolServer) -> ServerReport:
        """Return what this process knows of the server, without the agents that name it."""
        connection = self._connections.get(server.connection_key())
        if connection is not None:
            return connection.report()
        state = ServerState.FAILED if self._missing else ServerState.UNUSED
        return ServerReport(server.name, state, reason=self._missing)

    async def keep_only(self, servers: Collection[ToolServer]) -> None:
        """End the connections to all other servers, which no agent names any more, and make none to them again."""
        self._named = frozenset(server.connection_key() for server in servers)
        ending = {self._connections.pop(server) for server in self._connections.keys() - self._named}
        self._ending |= ending
        await _close(ending)
        self._ending -= ending

    async def call(self, call: ServedCall) -> ToolOutcome | Elicitation:
        """Call the tool and return its outcome, or what its server asks a person first.

        Every error becomes an outcome that the model can read.
        """
        text = clean_text(call.arguments).strip() or "{}"
        if not is_json_object(text):
            return failed(f"The arguments of {call.tool.spec.name} are not valid: send one JSON object.")
        outcome = await outcome_of_awaiting(self._call(call, text))
        if isinstance(outcome, Raised):
            limits = CallLimits(call.tool.server.timeout_seconds, self._max_result_bytes)
            return failure_for_model(outcome.error, call.tool.spec.name, call.context, limits)
        return outcome.value

    async def _call(self, call: ServedCall, arguments: str) -> ToolOutcome | Elicitation:
        try:
            connection = await self._connection(call.tool.server)
            return await connection.call(call, json.loads(arguments), self._max_result_bytes)
        except NotConnected as error:
            name = call.tool.spec.name
            raise ToolFailed(f"{name} was not called: its server is not connected: {error}.") from error

    async def _tool_list(self, server: ToolServer, *, is_patient: bool) -> ToolList:
        try:
            return await (await self._connection(server)).tool_list(is_patient=is_patient)
        except NotConnected as error:
            return ToolList(problems=(str(error),), is_known=False)

    def _known(self, server: ToolServer) -> ToolList:
        connection = self._connections.get(server.connection_key())
        return NO_TOOL_LIST if connection is None else connection.last_tool_list

    async def _connection(self, server: ToolServer) -> "Connection":
        """Return the connection to the server, which all agents share whatever tools they get from it."""
        if self._class is None:
            try:
                self._class = await asyncio.to_thread(_load)
            except NotConnected as error:
                self._missing = str(error)
                raise
        if self._is_closed:
            raise NotConnected("the service is stopping")
        shared = server.connection_key()
        if self._named is not None and shared not in self._named:
            raise NotConnected("no agent names it any more")
        if shared not in self._connections:
            self._connections[shared] = self._class(shared, self._read_variable, self._bounds, self._starting)
        return self._connections[shared]


async def _close(connections: "Collection[Connection]") -> None:
    await asyncio.gather(*(connection.close() for connection in connections))


def _load() -> "type[Connection]":
    """Import the modules that use the package `mcp`. Raises NotConnected if it is not installed."""
    try:
        from throughline.tools.mcp_client.connection import Connection  # noqa: PLC0415  # the package is optional
    except ImportError as error:
        raise NotConnected("MCP needs a package that is not installed: run `pip install 'throughline[mcp]'`") from error
    return Connection
