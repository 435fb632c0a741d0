"""Calls of a server's tools, and the texts that the model reads of their results."""

import functools
import json

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
from pydantic import TypeAdapter, ValidationError

from throughline.domain.basic_types import JsonValue
from throughline.domain.tool import ToolOutcome
from throughline.domain.tool_server import ServedTool
from throughline.execution.call_plugin import PluginTimedOut
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.execution.json_schema import find_misfit
from throughline.tools.make_function_tool import ToolFailed, failed, result_text

RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
UNKNOWN = "Whether it took effect is unknown."
ASKED_FOR_INPUT = "the server asked for input, which this service does not give yet"
SPARE_SECONDS = 60.0
"""How much later than the caller the SDK gives a call up."""

MAX_KIND = 100
KILO = 1_000


async def call_tool(client: Client, tool: ServedTool, arguments: dict[str, JsonValue], max_bytes: int) -> ToolOutcome:
    """Call the tool and return its result. Raises ToolFailed with the reason, PluginTimedOut.

    The SDK's own call would check results against the server's schema in this process, where a pattern may take for
    ever.
    """
    name = tool.spec.name
    request = CallToolRequest(params=CallToolRequestParams(name=tool.name, arguments=dict(arguments)))
    spare = tool.server.timeout_seconds + SPARE_SECONDS
    try:
        result = await client.session.send_request(request, RESULT, request_read_timeout_seconds=spare)
    except MCPError as error:
        raise _refusal(name, error) from error
    except ValidationError as error:
        raise ToolFailed(f"{name}: the server's answer is not valid MCP. {UNKNOWN}") from error
    if isinstance(result, InputRequiredResult):
        raise ToolFailed(f"{name} was not completed: {ASKED_FOR_INPUT}.")
    if result.is_error:
        return failed(result_text(text_of_result(result), max_bytes))
    misfit = await _misfit(tool, result)
    if misfit:
        raise ToolFailed(f"{name} was called, but its result does not fit the schema that its server gave: {misfit}")
    return ToolOutcome(result_text(text_of_result(result), max_bytes))


def _refusal(name: str, error: MCPError) -> Exception:
    match error.code:
        case _ if error.code == REQUEST_TIMEOUT:
            return PluginTimedOut()
        case _ if error.code == URL_ELICITATION_REQUIRED:
            return ToolFailed(f"{name} was not completed: {ASKED_FOR_INPUT}.")
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


def text_of_result(result: CallToolResult) -> str:
    """Return the blocks of the result as text, one below the other; the structured content as JSON if there is none."""
    text = "\n".join(_text_of_block(block) for block in result.content)
    if not text.strip() and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return text


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
