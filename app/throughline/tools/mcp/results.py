"""Calls of a server's tools, and the texts that the model reads of their results."""

import asyncio
import base64
import functools
import itertools
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
    AudioContent,
    BlobResourceContents,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from throughline.domain.basic_types import JsonValue
from throughline.domain.elicitation import NO_ELICITATION, Elicitation, InputGiven
from throughline.domain.message import ImageBlock, clean_text
from throughline.domain.tool import ToolOutcome
from throughline.domain.tool_server import CallProgress, ServedCall, ServedTool
from throughline.execution.call_plugin import PluginTimedOut
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.execution.json_schema import find_misfit
from throughline.tools.make_function_tool import ToolFailed, failed, result_text
from throughline.tools.mcp.elicitation import (
    QuestionsInCalls,
    RunningCall,
    read_addresses,
    read_questions,
    responses_of,
    take_answer,
)

RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
UNKNOWN = "Whether it took effect is unknown."
SPARE_SECONDS = 60.0
"""How much later than the caller the SDK gives a call up."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0
"""Pauses before a call is made again for a server that only returned a state."""

ENDS_OF_CONNECTIONS = frozenset({CONNECTION_CLOSED, REQUEST_TIMEOUT})
REPORT_SECONDS = 0.5
"""Shortest time between two reports of a call's progress."""

MAX_REPORTS = 200
MAX_PROGRESS_TEXT = 500
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The images that providers take."""

MAX_IMAGES = 4
MAX_IMAGE_CHARACTERS = 1_400_000
"""Longest image in base64: about a megabyte."""

MAX_KIND = 100
KILO = 1_000


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
            running.has_ended = error.code not in ENDS_OF_CONNECTIONS
            asked = _asked_in_error(running, error)
            if asked is None:
                raise _refusal(name, error) from error
            return asked
        except ValidationError as error:
            raise ToolFailed(f"{name}: the server's answer is not valid MCP. {UNKNOWN}") from error
    if isinstance(result, Elicitation):
        return result
    text = result_text(text_of_result(result, with_images=call.tool.server.images), max_bytes)
    asked = running.questions(text)
    if asked is not None:
        return asked
    if result.is_error:
        return failed(text)
    misfit = await _misfit(call.tool, result)
    if misfit:
        raise ToolFailed(f"{name} was called, but its result does not fit the schema that its server gave: {misfit}")
    return ToolOutcome(text, images=_images(result) if call.tool.server.images else ())


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
        request_read_timeout_seconds=call.tool.server.timeout_seconds + SPARE_SECONDS,
        progress_callback=_ProgressReport(call.report),
    )


class _ProgressReport:
    """Passes on the progress that a server tells of one call: rarely enough to be stored, and only if it grows."""

    def __init__(self, report: Callable[[CallProgress], None]) -> None:
        self._report = report
        self._last = -math.inf
        self._next_at = 0.0
        self._left = MAX_REPORTS

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Report the progress, unless it is the last one's, no number, or too soon after that."""
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
    return running.questions(clean_text(error.message)) if running.has_ended else None


def _refusal(name: str, error: MCPError) -> Exception:
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
            return ToolFailed(f"{name} failed, says its server: {error.message}\n{UNKNOWN}")


async def _misfit(tool: ServedTool, result: CallToolResult) -> str:
    schema = tool.output_schema
    if schema is None:
        return ""
    if "structured_content" not in result.model_fields_set:
        return "it has no structured content"
    find = functools.partial(find_misfit, schema, json.dumps(result.structured_content))
    return await run_off_loop_if_large(1, find, large=0)


def text_of_result(result: CallToolResult, *, with_images: bool = False) -> str:
    """Return the blocks of the result as text, one below the other; the structured content as JSON if there is none.

    `with_images`: images are shown beside the text, so that it has no lines for them.
    """
    shown = _image_blocks(result) if with_images else []
    text = "\n".join(_text_of_block(block) for block in result.content if block not in shown)
    if not text.strip() and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return text


def _image_blocks(result: CallToolResult) -> list[ContentBlock]:
    found = (block for block in result.content if isinstance(block, ImageContent) and _is_shown(block))
    return list(itertools.islice(found, MAX_IMAGES))


def _is_shown(image: ImageContent) -> bool:
    """Return whether providers take the image: its type, its size, and base64 that is complete."""
    if image.mime_type not in IMAGE_TYPES or len(image.data) > MAX_IMAGE_CHARACTERS:
        return False
    try:
        return bool(base64.b64decode(image.data, validate=True))
    except ValueError:
        return False


def _images(result: CallToolResult) -> tuple[ImageBlock, ...]:
    blocks = (block for block in _image_blocks(result) if isinstance(block, ImageContent))
    return tuple(ImageBlock(f"data:{block.mime_type};base64,{block.data}") for block in blocks)


def _text_of_block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return _placeholder("image", block.mime_type, block.data)
        case AudioContent():
            return _placeholder("audio", block.mime_type, block.data)
        case ResourceLink():
            return str(block.uri)
        case EmbeddedResource():
            return _text_of_resource(block.resource)


def _text_of_resource(resource: TextResourceContents | BlobResourceContents) -> str:
    if isinstance(resource, TextResourceContents):
        return resource.text
    return f"{resource.uri} {_placeholder('file', resource.mime_type or '', resource.blob)}"


def _placeholder(kind: str, mime_type: str, data: str) -> str:
    """Return a line in place of bytes, which are given in base64."""
    size = len(data) * 3 // 4
    shown = f"{size // KILO} kB" if size >= KILO else f"{size} bytes"
    return f"[{kind} {mime_type[:MAX_KIND]}, {shown}]"
