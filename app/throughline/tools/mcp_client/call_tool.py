"""Calls of a server's tools: sent, repeated with answers of a person, and turned into outcomes."""

import asyncio
import functools
import json
import math
from collections.abc import Callable
from dataclasses import replace

from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    URL_ELICITATION_REQUIRED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from throughline.domain.basic_types import JsonValue
from throughline.domain.elicitation import NO_ELICITATION, Elicitation, InputGiven
from throughline.domain.message import clean_text
from throughline.domain.tool import ToolOutcome
from throughline.domain.tool_server import CallProgress, ServedCall, ServedTool
from throughline.execution.call_plugin import PluginTimedOut
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.execution.json_schema import find_misfit
from throughline.tools.make_function_tool import ToolFailed, failed, result_text
from throughline.tools.mcp_client.elicitation import (
    QuestionsInCalls,
    RunningCall,
    read_addresses,
    read_questions,
    responses_of,
    take_answer,
)
from throughline.tools.mcp_client.read_result import images_of_result, text_of_result

RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
UNKNOWN = "Whether it took effect is unknown."
SDK_TIMEOUT_MARGIN_SECONDS = 60.0
"""How much later than the caller the SDK gives a call up."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0
"""Pauses before a call is made again for a server that only returned a state."""

UNANSWERED_CODES = frozenset({CONNECTION_CLOSED, REQUEST_TIMEOUT})
"""Error codes of the SDK's own: the server has not answered the call."""

REPORT_SECONDS = 0.5
"""Shortest time between two reports of a call's progress."""

MAX_REPORTS = 200
MAX_PROGRESS_TEXT = 500


async def call_tool(
    client: Client, call: ServedCall, arguments: dict[str, JsonValue], questions: QuestionsInCalls, max_bytes: int
) -> ToolOutcome | Elicitation:
    """Call the tool and return its result, or what its server asks before.

    Raises ToolFailed with the reason, PluginTimedOut.

    The SDK's own call would check results against the server's schema in this process, where a pattern may take for
    ever.
    """
    name = call.tool.spec.name
    with questions.during(name, call.elicitation) as running:
        try:
            result = await _complete(client, call, arguments)
            running.has_ended = True
        except MCPError as error:
            running.has_ended = error.code not in UNANSWERED_CODES
            asked = _asked_in_error(running, error)
            if asked is None:
                raise _tool_error(name, error) from error
            return asked
        except ValidationError as error:
            raise ToolFailed(f"{name}: the server's answer is not valid MCP. {UNKNOWN}") from error
    if isinstance(result, Elicitation):
        return result
    text = result_text(text_of_result(result, with_images=call.tool.server.images), max_bytes)
    asked = running.open_question(text)
    if asked is not None:
        return asked
    if result.is_error:
        return failed(text)
    misfit = await _misfit(call.tool, result)
    if misfit:
        raise ToolFailed(f"{name} was called, but its result does not fit the schema that its server gave: {misfit}")
    return ToolOutcome(text, images=images_of_result(result) if call.tool.server.images else ())


async def _complete(client: Client, call: ServedCall, arguments: dict[str, JsonValue]) -> CallToolResult | Elicitation:
    """Send the call until it is completed, or a person has to answer first.

    A server may return nothing but a state to come back with. It may also have forgotten the state by the time at which
    the person has answered; then the call begins again, and equal questions get the answers.
    """
    elicitation, answers, pause = call.elicitation, list[InputGiven](), FIRST_PAUSE_SECONDS
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        elicitation = NO_ELICITATION  # its answers are given while the call runs
    may_begin_again = True
    while True:
        try:
            result = await _send(client, call, arguments, elicitation)
        except MCPError as error:
            if error.code != INVALID_PARAMS or elicitation.state is None or not may_begin_again:
                raise
            elicitation, answers, may_begin_again = NO_ELICITATION, list(elicitation.answers), False
            continue
        if not isinstance(result, InputRequiredResult):
            return result
        earlier = elicitation.answers
        elicitation = replace(read_questions(call.tool.spec.name, result), earlier=earlier)
        for request in elicitation.requests:
            given = take_answer(answers, request)
            if given is None:
                return elicitation
            elicitation = elicitation.with_answer(given)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


async def _send(
    client: Client, call: ServedCall, arguments: dict[str, JsonValue], elicitation: Elicitation
) -> CallToolResult | InputRequiredResult:
    parameters = CallToolRequestParams(
        name=call.tool.name,
        arguments=dict(arguments),
        input_responses=responses_of(elicitation),
        request_state=elicitation.state,
    )
    return await client.session.send_request(
        CallToolRequest(params=parameters),
        RESULT,
        request_read_timeout_seconds=call.tool.server.timeout_seconds + SDK_TIMEOUT_MARGIN_SECONDS,
        progress_callback=_ProgressReport(call.on_progress),
    )


class _ProgressReport:
    """Progress notifications of one call, of which few enough are reported to be stored."""

    def __init__(self, report: Callable[[CallProgress], None]) -> None:
        self._report = report
        self._last = -math.inf
        self._next_at = 0.0
        self._left = MAX_REPORTS

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Report the progress if it has grown, is finite and comes REPORT_SECONDS after the last report."""
        now = asyncio.get_running_loop().time()
        if not (self._last < progress < math.inf) or now < self._next_at or not self._left:
            return
        self._last, self._next_at, self._left = progress, now + REPORT_SECONDS, self._left - 1
        known = total if total is not None and math.isfinite(total) else None
        self._report(CallProgress(progress, known, clean_text(message or "")[:MAX_PROGRESS_TEXT]))


def _asked_in_error(running: RunningCall, error: MCPError) -> Elicitation | None:
    """Return what the server of an older revision asks by its error, or has asked before it; None if nothing."""
    if error.code == URL_ELICITATION_REQUIRED:
        for request in read_addresses(running.tool, error.data):
            running.ask(request)
    return running.open_question(clean_text(error.message)) if running.has_ended else None


def _tool_error(name: str, error: MCPError) -> Exception:
    match error.code:
        case _ if error.code == REQUEST_TIMEOUT:
            return PluginTimedOut()
        case _ if error.code == CONNECTION_CLOSED:
            return ToolFailed(
                f"{name}: the connection to its server ended before the result ({error.message}). {UNKNOWN}"
            )
        case _ if error.code in {INVALID_PARAMS, METHOD_NOT_FOUND}:
            return ToolFailed(f"{name} was refused by its server: {error.message}")
        case _:
            return ToolFailed(f"{name} failed: {error.message}\n{UNKNOWN}")


async def _misfit(tool: ServedTool, result: CallToolResult) -> str:
    schema = tool.output_schema
    if schema is None:
        return ""
    if "structured_content" not in result.model_fields_set:
        return "it has no structured content"
    find = functools.partial(find_misfit, schema, json.dumps(result.structured_content))
    return await run_off_loop_if_large(1, find, large=0)
