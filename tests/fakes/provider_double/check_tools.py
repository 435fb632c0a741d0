"""Refuses tools a strict provider refuses: names, JSON schemas, sizes, and what only makes sense beside tools."""

from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused
from fakes.provider_double.rules import array_too_long, check_function_name, empty_array, string_in, wrong_type

MAX_TOOLS = 128
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_ONLY_WITH_TOOLS = ("tool_choice", "parallel_tool_calls")


def check_tools(body: Json) -> None:
    """Raise Refused for the first thing that is wrong with the tools."""
    tools = body.get("tools")
    if tools is None:
        _check_without(body)
        return
    if not isinstance(tools, list):
        raise wrong_type("tools", "an array of objects", tools)
    if not tools:
        raise empty_array("tools")
    if len(tools) > MAX_TOOLS:
        raise array_too_long("tools", len(tools), MAX_TOOLS)
    names = [_check_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    if len(set(names)) != len(names):
        raise Refused("Invalid 'tools': tool names must be unique.", param="tools", code="invalid_value")


def _check_without(body: Json) -> None:
    for field in _ONLY_WITH_TOOLS:
        if body.get(field) is not None:
            raise Refused(
                f"Invalid value for '{field}': '{field}' is only allowed when 'tools' are specified.", param=field
            )


def _check_tool(tool: object, param: str) -> str:
    if not isinstance(tool, dict):
        raise wrong_type(param, "an object", tool)
    if string_in(tool, "type", param) != "function":
        raise Refused(f"Invalid value: '{tool['type']}'. Supported values are: 'function'.", param=f"{param}.type")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise wrong_type(f"{param}.function", "an object", function)
    name = string_in(function, "name", f"{param}.function")
    check_function_name(name, f"{param}.function.name")
    parameters = function.get("parameters")
    if parameters is not None:
        _check_parameters(parameters, name, f"{param}.function.parameters")
    return name


def _check_parameters(schema: object, name: str, param: str) -> None:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or kind != "object":
        raise _bad_schema(name, param, f"""schema must be a JSON Schema of 'type: "object"', got 'type: "{kind}"'.""")
    _check_schema(schema, (), (name, param))


def _check_schema(schema: object, context: tuple[str, ...], where: tuple[str, str]) -> None:
    name, param = where
    if not isinstance(schema, dict):
        raise _bad_schema(name, param, f"In context={context}, {schema!r} is not of type 'object', 'boolean'.")
    kinds = schema.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind is not None and kind not in _TYPES:
            raise _bad_schema(name, param, f"{kind!r} is not valid under any of the given schemas.")
    if kinds == "array" and "items" not in schema:
        raise _bad_schema(name, param, f"In context={context}, array schema missing items.")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(key, str) for key in required):
        raise _bad_schema(name, param, f"In context={context}, {required!r} is not of type 'array'.")
    for key, below in (schema.get("properties") or {}).items():
        _check_schema(below, (*context, "properties", key), where)
    if isinstance(schema.get("items"), dict):
        _check_schema(schema["items"], (*context, "items"), where)


def _bad_schema(name: str, param: str, said: str) -> Refused:
    return Refused(f"Invalid schema for function '{name}': {said}", param=param, code="invalid_function_parameters")
