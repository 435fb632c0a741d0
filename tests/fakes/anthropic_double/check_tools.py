"""Refuses tools Anthropic refuses: names, schemas, choices, and calls in the conversation without any tool."""

from collections.abc import Sequence

from fakes.anthropic_double.check_blocks import check_name
from fakes.anthropic_double.check_messages import blocks_of
from fakes.anthropic_double.refusals import Refused, missing, not_a
from fakes.provider_double.json_types import Json

CHOICES = ("auto", "any", "tool", "none")
_FIELDS = {"type", "name", "description", "input_schema", "cache_control", "strict"}
_WITH_CALLS = {"tool_use", "tool_result"}


def check_tools(body: Json) -> None:
    """Raise Refused for the first thing that is wrong with the tools of a request whose messages are valid."""
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise not_a("list", "tools")
    names = [_check_tool(tool, f"tools.{index}") for index, tool in enumerate(tools or ())]
    if len(set(names)) != len(names):
        raise Refused("tools: Tool names must be unique.")
    _check_choice(body.get("tool_choice"), names)
    if not names and _has_calls(body["messages"]):
        raise Refused("Requests which include `tool_use` or `tool_result` blocks must define tools")


def _check_tool(tool: object, path: str) -> str:
    if not isinstance(tool, dict):
        raise not_a("dictionary", path)
    if tool.get("type", "custom") != "custom":
        raise Refused(f"{path}: Input tag '{tool['type']}' does not match any of the expected tags: 'custom'")
    unknown = set(tool) - _FIELDS
    if unknown:
        raise Refused(f"{path}.custom.{min(unknown)}: Extra inputs are not permitted")
    check_name(tool.get("name"), f"{path}.custom.name")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise missing(f"{path}.custom.input_schema")
    if schema.get("type") != "object":
        problem = "Field required" if "type" not in schema else "Input should be 'object'"
        raise Refused(f"{path}.custom.input_schema.type: {problem}")
    name: str = tool["name"]
    return name


def _check_choice(choice: object, names: Sequence[str]) -> None:
    if choice is None:
        return
    if not names:
        raise Refused("tool_choice: tool_choice may only be specified while providing tools")
    if not isinstance(choice, dict) or choice.get("type") not in CHOICES:
        raise Refused("tool_choice: Input should be 'auto', 'any', 'tool' or 'none'")
    if choice["type"] == "tool" and choice.get("name") not in names:
        raise Refused(f"tool_choice: Tool '{choice.get('name')}' not found in provided tools")


def _has_calls(messages: Sequence[Json]) -> bool:
    return any(block["type"] in _WITH_CALLS for message in messages for block in blocks_of(message))
