"""One connection to a server of tools: made when it is first needed, kept, and made again after it failed.

The connection lives in a task of its own, because the SDK must leave its cancel scopes in the task that entered them.
"""

import asyncio
import contextvars
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import structlog
from mcp.client import Transport
from mcp.client.client import Client
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation, ToolListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from throughline.domain.basic_types import JsonValue
from throughline.domain.elicitation import Elicitation
from throughline.domain.errors import class_names, only_cause_of
from throughline.domain.message import clean_text
from throughline.domain.tool import ToolOutcome
from throughline.domain.tool_server import ListChange, ServedCall, ServerReport, ServerState, ToolServer
from throughline.execution.call_plugin import PluginTimedOut
from throughline.execution.error_boundary import Raised, outcome_of_awaiting, running_concurrently
from throughline.tools.mcp_client.bounds import Bounds, NotConnected
from throughline.tools.mcp_client.call_tool import call_tool
from throughline.tools.mcp_client.choose_tools import NO_TOOL_LIST, ToolList
from throughline.tools.mcp_client.elicitation import OpenCalls
from throughline.tools.mcp_client.http import address_transport
from throughline.tools.mcp_client.oauth import TokenSource
from throughline.tools.mcp_client.read_tool_list import read_tool_list
from throughline.tools.mcp_client.stdio import PATH, connect_program

log = structlog.get_logger(__name__)

REQUEST_SECONDS = 30.0
"""Time of a request that is no call of a tool."""

HEALTHY_SECONDS = 60.0
"""After a connection of this length, the backoff starts again from its first pause."""

SDK_LOGGERS = ("mcp", "client")
"""Loggers of the SDK; what they write contains texts of servers, and a server decides how often."""

CLOSE_MARGIN_SECONDS = 8.0
"""How much longer the end of a connection may take than its steps."""

MAX_REASON = 300
CLIENT = Implementation(name="throughline", version="1")


for _name in SDK_LOGGERS:
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class Connection:
    """The connection to one server."""

    def __init__(
        self, server: ToolServer, read_variable: Callable[[str], str], bounds: Bounds, starting: asyncio.Lock
    ) -> None:
        """Store the server; it is connected when the connection is first used. All connections share `starting`."""
        self._server = server
        self._read_variable = read_variable
        self._bounds = bounds
        self._starting = starting
        self._client: Client | None = None
        self._tool_list = NO_TOOL_LIST
        self._listed_at: float | None = None
        self._open_calls = OpenCalls(self._is_lost, self._report_lost)
        self._changes = (0, 0, 0)
        self._changed_at: float | None = None
        self._protocol: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._attempt_ended = asyncio.Event()
        self._wake = asyncio.Event()
        self._lost_event = asyncio.Event()
        self._lost_reason = ""
        self._secrets: tuple[str, ...] = ()
        self._tokens: TokenSource | None = None
        self._problem = ""
        self._failures = 0
        self._next_at = 0.0
        self._connected_at: float | None = None
        self._waited_until = 0.0
        self._is_closed = False

    @property
    def last_tool_list(self) -> ToolList:
        """The server's tools as they were listed last, also while it is not connected."""
        return self._tool_list

    def report(self) -> ServerReport:
        """Return the state of the connection, without the values of variables."""
        changed_ago = _seconds_since(self._changed_at)
        is_listed = self._listed_at is not None
        state = self._state()
        return ServerReport(
            self._server.name,
            state,
            reason=self._problem if state is ServerState.FAILED else "",
            tools=len(self._tool_list.tools) if is_listed else None,
            protocol=self._protocol,
            listed_seconds_ago=_seconds_since(self._listed_at),
            problems=self._tool_list.problems if is_listed else (),
            last_change=None if changed_ago is None else ListChange(*self._changes, changed_ago),
        )

    def _state(self) -> ServerState:
        if self._client is not None:
            return ServerState.CONNECTED
        if self._task is None:
            return ServerState.UNUSED
        return ServerState.FAILED if self._task.done() else ServerState.CONNECTING

    async def tool_list(self, *, is_patient: bool = False) -> ToolList:
        """Return the server's tools. A list that is no longer fresh is renewed for later calls.

        With `is_patient` a running attempt to connect is waited for until it ends. Raises NotConnected.
        """
        await self._connected(is_patient=is_patient)
        if (_seconds_since(self._listed_at) or 0.0) > self._tool_list.fresh_seconds:
            self._wake.set()
        return self._tool_list

    async def call(
        self, call: ServedCall, arguments: dict[str, JsonValue], max_bytes: int
    ) -> ToolOutcome | Elicitation:
        """Call a tool. Raises NotConnected, ToolFailed or PluginTimedOut."""
        client = await self._connected(is_patient=True)
        limit = asyncio.timeout(call.tool.server.timeout_seconds)
        try:
            async with limit:
                return await call_tool(client, call, arguments, self._open_calls, max_bytes)
        except TimeoutError:
            if limit.expired():
                raise PluginTimedOut from None
            raise

    async def close(self) -> None:
        """End the connection, by force if the server does not take part."""
        self._is_closed = True
        task = self._task
        for _ in range(2):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=3 * self._bounds.close_seconds + CLOSE_MARGIN_SECONDS)

    async def _connected(self, *, is_patient: bool) -> Client:
        """Return the client. Raises NotConnected with the reason.

        A turn first waits for the end of the pause after a failure, if that ends in time. The turn that begins an
        attempt to connect waits for it. Other turns wait no longer than that one, but for patient ones: they wait until
        the attempt has ended.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._bounds.wait_seconds
        if self._client is None and (self._task is None or self._task.done()):
            if self._next_at > until:
                raise NotConnected(self._problem)
            await asyncio.sleep(self._next_at - loop.time())
        if self._client is None and not self._is_closed:
            if self._task is None or self._task.done():
                self._begin(until)
            await self._wait_for_attempt(is_patient=is_patient)
        if self._client is None:
            raise NotConnected(self._problem or "it is still being connected; its tools come when it has answered")
        return self._client

    async def _wait_for_attempt(self, *, is_patient: bool) -> None:
        """Wait until the attempt has ended, but not longer than turns wait for it unless `is_patient`."""
        if is_patient:
            await self._attempt_ended.wait()
        elif asyncio.get_running_loop().time() < self._waited_until:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._waited_until):
                    await self._attempt_ended.wait()

    def _begin(self, waited_until: float) -> None:
        self._waited_until = waited_until
        self._attempt_ended.clear()
        self._wake.clear()
        self._lost_event.clear()
        self._lost_reason = self._problem = ""
        # an empty context: the connection serves all turns, so that its logs belong to none
        self._task = asyncio.create_task(self._run(), name="mcp connection", context=contextvars.Context())

    async def _run(self) -> None:
        """Connect, and keep the connection until it fails."""
        self._connected_at = None
        try:
            outcome = await outcome_of_awaiting(self._keep_connected())
        finally:
            self._client = None
            self._problem = "its connection was ended"
            self._attempt_ended.set()
        assert isinstance(outcome, Raised)
        now = asyncio.get_running_loop().time()
        was_healthy = (_seconds_since(self._connected_at) or 0.0) > HEALTHY_SECONDS
        self._failures = 1 if was_healthy else self._failures + 1
        pause = self._bounds.first_pause_seconds * 2.0 ** min(self._failures - 1, 30)
        self._next_at = now + min(pause, self._bounds.longest_pause_seconds)
        self._problem = self._reason(outcome.error)
        log.warning("mcp connection failed", server=self._server.name, reason=self._problem, failures=self._failures)

    async def _keep_connected(self) -> None:
        open_calls = OpenCalls(self._is_lost, self._report_lost)
        async with (
            asyncio.timeout(self._bounds.connect_seconds) as limit,
            self._transport() as transport,
            Client(
                transport,
                elicitation_callback=open_calls.answer,
                read_timeout_seconds=REQUEST_SECONDS,
                message_handler=self._receive,
                client_info=CLIENT,
                cache=None,
            ) as client,
        ):
            await self._list(client)
            limit.reschedule(None)
            self._client, self._open_calls = client, open_calls
            self._protocol, self._connected_at = client.protocol_version, asyncio.get_running_loop().time()
            self._attempt_ended.set()
            async with running_concurrently(lambda: self._listen(client), "mcp subscription"):
                await self._renew_lists(client)

    async def _list(self, client: Client) -> None:
        read = await read_tool_list(client, self._bounds)
        before = self._tool_list
        self._tool_list = replace(read, problems=tuple(map(self._without_secrets, read.problems)))
        was_listed, self._listed_at = self._listed_at is not None, asyncio.get_running_loop().time()
        if not was_listed:
            return
        added, removed, changed = changes = self._tool_list.differences(before)
        if any(changes):
            self._changes, self._changed_at = changes, self._listed_at
            log.info("mcp tools changed", server=self._server.name, added=added, removed=removed, changed=changed)

    async def _renew_lists(self, client: Client) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._lost_reason:
                raise NotConnected(self._lost_reason)
            await self._list(client)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._bounds.relist_seconds):
                    await self._lost_event.wait()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the tool list. Only the revision 2026-07-28 has subscriptions."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        while True:
            await self._follow_changes(client)
            await asyncio.sleep(self._bounds.relist_seconds)
            self._wake.set()

    async def _follow_changes(self, client: Client) -> None:
        with suppress(SubscriptionLost):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._wake.set()

    async def _receive(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._wake.set()

    def _is_lost(self) -> bool:
        return self._client is None or bool(self._lost_reason)

    def _report_lost(self, reason: str) -> None:
        self._lost_reason = self._lost_reason or reason
        self._lost_event.set()
        self._wake.set()

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[Transport]:
        """Yield the transport to the server. Raises NotConnected if a variable is not set."""
        server, self._secrets = self._server, ()
        if server.command:
            variables = {PATH: self._read_variable(PATH), **self._values(server.variables)}
            yield connect_program(server, variables, self._bounds, self._report_lost, self._starting)
            return
        headers, self._tokens = self._values(server.headers), self._token_source()
        async with address_transport(server, headers, self._tokens, self._bounds, self._report_lost) as transport:
            yield transport

    def _token_source(self) -> TokenSource | None:
        oauth = self._server.oauth
        if oauth is None:
            return None
        values = self._values((("client_id", oauth.client_id), ("client_secret", oauth.client_secret)))
        return TokenSource(oauth, values["client_id"], values["client_secret"])

    def _values(self, named: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
        values = {name: self._read_variable(variable) for name, variable in named}
        for name, variable in named:
            if not values[name]:
                raise NotConnected(f"the environment variable {variable} is not set, from which {name} is taken")
        self._secrets += tuple(values.values())
        return values

    def _reason(self, error: BaseException) -> str:
        """Return why the connection ended, without the values of variables."""
        reason = self._without_secrets(self._lost_reason or self._reason_of(only_cause_of(error)))
        return reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]} …"

    def _without_secrets(self, text: str) -> str:
        for secret in (*self._secrets, *(self._tokens.recent_tokens if self._tokens else ())):
            text = text.replace(secret, "…")
        return text

    def _reason_of(self, error: BaseException) -> str:
        match error:
            case NotConnected():
                return str(error)
            case TimeoutError():
                return f"it did not list its tools within {self._bounds.connect_seconds:g} seconds"
            case MCPError():
                return f"connecting or listing its tools failed: {clean_text(error.message)}"
            case ValidationError():
                place = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
                return f"its answer is not valid MCP, at {clean_text(place)}"
            case _:
                return f"it failed with {class_names(error)}"


def _seconds_since(moment: float | None) -> float | None:
    return None if moment is None else asyncio.get_running_loop().time() - moment
