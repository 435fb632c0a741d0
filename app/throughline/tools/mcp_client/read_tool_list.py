"""Reading of a server's list of tools, which may be long, broken or hostile."""

import json
import re
from collections.abc import Mapping

from mcp.client.client import Client
from mcp_types import Tool

from throughline.domain.basic_types import JsonObject
from throughline.domain.message import clean_text
from throughline.execution.json_schema import (
    MAX_LEVELS,
    MAX_SCHEMA_BYTES,
    SchemaInvalid,
    check_schema,
    is_too_deep,
    schema_misfit,
)
from throughline.tools.mcp_client.bounds import Bounds
from throughline.tools.mcp_client.choose_tools import ListedTool, ToolList

MAX_PAGES = 20
MAX_LISTED = 1_000
MAX_TOOL_NAME = 128
"""Longest name of a tool; the protocol recommends the same."""

PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Names of parameters that providers take."""

MAX_DESCRIPTION = 4_000
MAX_PROBLEMS = 10
MAX_SHOWN = 80


async def read_tool_list(client: Client, bounds: Bounds) -> ToolList:
    """Return the server's tools, at most MAX_LISTED of at most MAX_PAGES pages.

    A tool with a name or schema that cannot be used is left out and named in the problems.
    """
    tools: dict[str, ListedTool] = {}
    problems: list[str] = []
    cursor: str | None = None
    fresh_seconds = 0.0
    for page_number in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        if page_number == 0:
            fresh_seconds = page.ttl_ms / 1_000 or bounds.list_seconds
        for tool in page.tools:
            problem = "has the name of another tool" if tool.name in tools else _problem(tool)
            if problem:
                problems.append(f"the tool {clean_text(tool.name)[:MAX_SHOWN]!r} is left out: it {problem}")
            else:
                tools[tool.name] = _listed(tool)
        cursor = page.next_cursor
        if cursor is None or len(tools) >= MAX_LISTED:
            break
    if cursor is not None or len(tools) > MAX_LISTED:
        problems.append(f"its list of tools was read to the tool {min(len(tools), MAX_LISTED)} only")
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} more"]
    fresh_seconds = min(max(fresh_seconds, bounds.relist_seconds), bounds.list_seconds)
    return ToolList(tuple(tools.values())[:MAX_LISTED], tuple(problems), fresh_seconds)


def _problem(tool: Tool) -> str:
    """Return why the tool cannot be used, '' if it can."""
    if not tool.name or len(tool.name) > MAX_TOOL_NAME or clean_text(tool.name) != tool.name:
        return f"has no name of 1 to {MAX_TOOL_NAME} characters without NUL"
    return _size_problem(tool) or _schema_problem(tool.input_schema)


def _size_problem(tool: Tool) -> str:
    """Return why the input schema is none that can be checked, '' if it can."""
    if tool.input_schema.get("type") != "object" or not isinstance(tool.input_schema.get("properties", {}), Mapping):
        return "has an input schema that is not one of an object"
    if is_too_deep(tool.input_schema):
        return f"has an input schema of more than {MAX_LEVELS} levels"
    try:
        text = json.dumps(tool.input_schema, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return "has NaN or an infinite number in its input schema"
    if clean_text(text) != text or "\\u0000" in text:
        return "has NUL or half of a surrogate pair in its input schema"
    if len(text.encode()) > MAX_SCHEMA_BYTES:
        return f"has an input schema of more than {MAX_SCHEMA_BYTES:,} bytes"
    return ""


def _schema_problem(schema: JsonObject) -> str:
    """Return what providers would refuse of the input schema, '' if nothing."""
    properties = schema.get("properties", {})
    names = properties if isinstance(properties, Mapping) else {}
    wrong_name = next((name for name in names if not PROPERTY.fullmatch(name)), None)
    if wrong_name is not None:
        return f"has a parameter {wrong_name[:MAX_SHOWN]!r}, whose name providers refuse"
    misfit = schema_misfit(schema)
    return f"has an input schema that is no JSON schema: {misfit}" if misfit else ""


def _listed(tool: Tool) -> ListedTool:
    hints = tool.annotations
    text = clean_text(tool.description or tool.title or tool.name)
    return ListedTool(
        name=tool.name,
        description=text if len(text) <= MAX_DESCRIPTION else f"{text[:MAX_DESCRIPTION]} …",
        schema={"properties": {}, **tool.input_schema},
        output_schema=_checkable(tool.output_schema),
        is_repeatable=hints is not None and bool(hints.read_only_hint or hints.idempotent_hint),
    )


def _checkable(schema: JsonObject | None) -> JsonObject | None:
    """Return the schema if results can be checked against it within limits, else None."""
    if schema is None:
        return None
    try:
        check_schema(schema)
    except SchemaInvalid:
        return None
    return schema
