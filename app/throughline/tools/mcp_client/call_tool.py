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
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
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
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.execution.json_schema import find_misfit
from throughline.tools.make_function_tool import ToolFailed, failed, result_text
from throughline.tools.mcp_client.elicitation import (
    OpenCalls,
    RunningCall,
    read_addresses,
    read_questions,
    responses_of,
    take_answer,
)
from throughline.tools.mcp_client.read_result import read_result

RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
UNKNOWN = "Whether it took effect is unknown."
SDK_TIMEOUT_MARGIN_SECONDS = 60.0
"""How much later than the caller the SDK gives a call up."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0
"""Pauses before a call is made again for a server that only returned a state."""

STATE_EXPIRED = {"reason": "invalid_request_state"}
"""What servers made with the SDK say of a state that they do not take; the tool has not run."""

REPORT_SECONDS = 0.5
"""Shortest time between two reports of a call's progress."""

MAX_REPORTS = 200
MAX_PROGRESS_TEXT = 500


async def call_tool(
    client: Client, call: ServedCall, arguments: dict[str, JsonValue], open_calls: OpenCalls, max_bytes: int
) -> ToolOutcome | Elicitation:
    """Call the tool and return its result, or what its server asks before.

    Raises ToolFailed with the reason.

    The SDK's own call would check results against the server's schema in this process, where a pattern may take for
    ever.
    """
    name = call.tool.spec.name
    with open_calls.during(name, call.elicitation) as running:
        result = await _result(client, call, arguments, running, open_calls.is_lost)
    if isinstance(result, Elicitation):
        return result
    whole, images = read_result(result, takes_images=call.tool.server.images)
    text = result_text(whole, max_bytes)
    asked = running.open_question(text)
    if asked is not None:
        return asked
    if result.is_error:
        return failed(text)
    misfit = await _misfit(call.tool, result)
    if misfit:
        raise ToolFailed(f"{name} was called, but its result does not fit the schema that its server gave: {misfit}")
    return ToolOutcome(text, images=images)


async def _result(
    client: Client,
    call: ServedCall,
    arguments: dict[str, JsonValue],
    running: RunningCall,
    is_lost: Callable[[], bool],
) -> CallToolResult | Elicitation:
    """Return what the server answers, or asks by an error. Raises ToolFailed."""
    name = call.tool.spec.name
    try:
        result = await _complete(client, call, arguments)
    except ValidationError as error:
        raise ToolFailed(f"{name}: the server's answer is not valid MCP. {UNKNOWN}") from error
    except MCPError as error:
        if is_lost():  # the code alone does not say it: servers use the SDK's codes, too
            lost = f"the connection to its server ended before the result ({error.message})"
            raise ToolFailed(f"{name}: {lost}. {UNKNOWN}") from error
        running.has_ended = True
        asked = _asked_in_error(running, error)
        if asked is None:
            raise ToolFailed(_error_text(name, error)) from error
        return asked
    running.has_ended = True
    return result


async def _complete(client: Client, call: ServedCall, arguments: dict[str, JsonValue]) -> CallToolResult | Elicitation:
    """Send the call until it is completed, or a person has to answer first.

    A server may return nothing but a state to come back with. It may also refuse its state as expired by the time at
    which the person has answered; then the call begins again, and equal questions get the answers.
    """
    elicitation, answers, pause = call.elicitation, list[InputGiven](), FIRST_PAUSE_SECONDS
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        elicitation = NO_ELICITATION  # its answers are given while the call runs
    may_begin_again = True
    while True:
        try:
            result = await _send(client, call, arguments, elicitation)
        except MCPError as error:
            if error.data != STATE_EXPIRED or elicitation.state is None or not may_begin_again:
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
    return running.open_question(clean_text(error.message))


def _error_text(name: str, error: MCPError) -> str:
    if error.code in {INVALID_PARAMS, METHOD_NOT_FOUND}:
        return f"{name} was refused by its server: {error.message}"
    return f"{name} failed: {error.message}\n{UNKNOWN}"


async def _misfit(tool: ServedTool, result: CallToolResult) -> str:
    schema = tool.output_schema
    if schema is None:
        return ""
    if "structured_content" not in result.model_fields_set:
        return "it has no structured content"
    find = functools.partial(find_misfit, schema, json.dumps(result.structured_content))
    return await run_off_loop_if_large(1, find, large=0)
