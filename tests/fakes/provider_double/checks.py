"""What a strict provider checks of messages, tools and response formats, refused in OpenAI's words."""

import re
from collections.abc import Sequence

from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused

FUNCTION_NAME = "^[a-zA-Z0-9_-]+$"
_FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_KINDS = {type(None): "null", bool: "a boolean", int: "an integer", float: "a decimal", str: "a string"}


def kind_of(value: object) -> str:
    """Return the kind of a JSON value in OpenAI's words."""
    return _KINDS.get(type(value), "an array" if isinstance(value, list) else "an object")


def wrong_type(param: str, expected: str, value: object) -> Refused:
    """A value of the wrong JSON type."""
    return Refused(
        f"Invalid type for '{param}': expected {expected}, but got {kind_of(value)} instead.",
        param=param,
        code="invalid_type",
    )


def missing(param: str) -> Refused:
    """A parameter that must be there."""
    return Refused(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")


def invalid_value(param: str, value: object, supported: str) -> Refused:
    """A value outside a closed set."""
    return Refused(f"Invalid value: '{value}'. Supported values are: {supported}.", param=param, code="invalid_value")


def empty_array(param: str) -> Refused:
    """An array that must hold something."""
    return Refused(
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        param=param,
        code="empty_array",
    )


def array_too_long(param: str, length: int, most: int) -> Refused:
    """An array that holds more than OpenAI takes."""
    return Refused(
        f"Invalid '{param}': array too long. Expected an array with maximum length {most}, "
        f"but got an array with length {length} instead.",
        param=param,
        code="array_above_max_length",
    )


def empty_string(param: str) -> Refused:
    """A text that must say something. (OpenAI lets some of these pass; Anthropic and many gateways do not.)"""
    return Refused(
        f"Invalid '{param}': empty string. Expected a string with minimum length 1, but got an empty string instead.",
        param=param,
        code="empty_string",
    )


def check_length(param: str, text: str, longest: int) -> None:
    """Refuse a text that is too long."""
    if len(text) > longest:
        raise Refused(
            f"Invalid '{param}': string too long. Expected a string with maximum length {longest}, "
            f"but got a string with length {len(text)} instead.",
            param=param,
            code="string_above_max_length",
        )


def string_in(value: Json, field: str, param: str) -> str:
    """Return the string under `field`. Raises Refused where there is none."""
    found = value.get(field)
    if found is None:
        raise missing(f"{param}.{field}")
    if not isinstance(found, str):
        raise wrong_type(f"{param}.{field}", "a string", found)
    return found


def check_function_name(name: str, param: str) -> None:
    """Refuse a name that is no function's name."""
    check_length(param, name, 64)
    if not _FUNCTION_NAME.fullmatch(name):
        raise Refused(
            f"Invalid '{param}': string does not match pattern. "
            f"Expected a string that matches the pattern '{FUNCTION_NAME}'.",
            param=param,
            code="invalid_value",
        )


ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_SUPPORTED_ROLES = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'"
MAX_ID = 40
MAX_CALLS = 128
MAX_TEXT = 10_485_760


def check_messages(messages: object) -> None:
    """Raise Refused for the first thing that is wrong with the messages."""
    if messages is None:
        raise missing("messages")
    if not isinstance(messages, list):
        raise wrong_type("messages", "an array of objects", messages)
    if not messages:
        raise empty_array("messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise wrong_type(f"messages[{index}]", "an object", message)
        _check_message(message, f"messages[{index}]")
    _check_pairs(messages)


def check_reasoning(messages: Sequence[Json], *, is_required: bool) -> None:
    """Raise Refused for reasoning that is sent to a model that knows none, or is missing where it is required."""
    for index, message in enumerate(messages):
        sent = sorted({"reasoning_content", "reasoning", "reasoning_details"} & message.keys())
        if sent and not is_required:
            raise Refused(f"Unrecognized request argument supplied: messages[{index}].{sent[0]}")
        if is_required and message.get("tool_calls") and not isinstance(message.get("reasoning_content"), str):
            raise Refused("The `reasoning_content` in the thinking mode must be passed back to the API.")


def _check_message(message: Json, param: str) -> None:
    role = string_in(message, "role", param)
    if role not in ROLES:
        raise invalid_value(f"{param}.role", role, _SUPPORTED_ROLES)
    if message.get("tool_calls") is not None:
        _check_calls(message, role, param)
    if role == "tool":
        check_length(f"{param}.tool_call_id", string_in(message, "tool_call_id", param), MAX_ID)
    _check_content(message, role, param)


def _check_content(message: Json, role: str, param: str) -> None:
    content = message.get("content")
    if not content and role == "assistant" and message.get("tool_calls"):
        return
    if content is None:
        raise Refused("Invalid value for 'content': expected a string, got null.", param=f"{param}.content")
    if isinstance(content, str):
        _check_text(content, f"{param}.content")
        return
    if not isinstance(content, list):
        raise wrong_type(f"{param}.content", "one of a string or array of objects", content)
    if not content:
        raise empty_array(f"{param}.content")
    for index, block in enumerate(content):
        _check_block(block, role, f"{param}.content[{index}]")


def _check_text(text: str, param: str) -> None:
    check_length(param, text, MAX_TEXT)
    if not text.strip():
        raise empty_string(param)


def _check_block(block: object, role: str, param: str) -> None:
    if not isinstance(block, dict):
        raise wrong_type(param, "an object", block)
    kind = string_in(block, "type", param)
    if kind == "text":
        _check_text(string_in(block, "text", param), f"{param}.text")
    elif kind == "image_url" and role == "user":
        _check_image(block.get("image_url"), f"{param}.image_url")
    else:
        raise invalid_value(f"{param}.type", kind, "'text' and 'image_url'" if role == "user" else "'text'")


def _check_image(image: object, param: str) -> None:
    if not isinstance(image, dict):
        raise wrong_type(param, "an object", image)
    if not string_in(image, "url", param).startswith(("https://", "http://", "data:image/")):
        raise Refused(f"Invalid '{param}.url'. Expected a valid URL.", param=f"{param}.url", code="invalid_value")


def _check_calls(message: Json, role: str, param: str) -> None:
    if role != "assistant":
        raise Refused(f"Unrecognized parameter: '{param}.tool_calls'.", param=param, code="unknown_parameter")
    calls = message["tool_calls"]
    if not isinstance(calls, list):
        raise wrong_type(f"{param}.tool_calls", "an array of objects", calls)
    if not calls:
        raise empty_array(f"{param}.tool_calls")
    if len(calls) > MAX_CALLS:
        raise array_too_long(f"{param}.tool_calls", len(calls), MAX_CALLS)
    for index, call in enumerate(calls):
        _check_call(call, f"{param}.tool_calls[{index}]")


def _check_call(call: object, param: str) -> None:
    if not isinstance(call, dict):
        raise wrong_type(param, "an object", call)
    call_id = string_in(call, "id", param)
    check_length(f"{param}.id", call_id, MAX_ID)
    if not call_id:
        raise empty_string(f"{param}.id")
    if string_in(call, "type", param) != "function":
        raise invalid_value(f"{param}.type", call["type"], "'function'")
    function = call.get("function")
    if not isinstance(function, dict):
        raise wrong_type(f"{param}.function", "an object", function)
    check_function_name(string_in(function, "name", f"{param}.function"), f"{param}.function.name")
    string_in(function, "arguments", f"{param}.function")


def _check_pairs(messages: Sequence[Json]) -> None:
    """Each step with calls is followed at once by exactly one result for each; no result stands alone."""
    known: set[str] = set()
    waiting: list[str] = []
    answered: set[str] = set()
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            _check_result(message["tool_call_id"], (waiting, answered), f"messages.[{index}]")
            continue
        _check_all_answered(waiting, index)
        answered = set()
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        _check_new(waiting, known, f"messages.[{index}]")
    _check_all_answered(waiting, len(messages))


def _check_result(call_id: str, calls: tuple[list[str], set[str]], param: str) -> None:
    waiting, answered = calls
    if call_id in waiting:
        waiting.remove(call_id)
        answered.add(call_id)
    elif call_id in answered:
        raise Refused(f"Duplicate value for 'tool_call_id' of '{call_id}' in message with role 'tool'.", param=param)
    elif waiting or answered:
        raise Refused(
            f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message.",
            param=f"{param}.tool_call_id",
        )
    else:
        raise Refused(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            "'tool_calls'.",
            param=f"{param}.role",
        )


def _check_all_answered(waiting: Sequence[str], index: int) -> None:
    if waiting:
        raise Refused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
            param=f"messages.[{index}].role",
        )


def _check_new(ids: Sequence[str], known: set[str], param: str) -> None:
    """Refuse an id used before, in this message or an earlier one (Anthropic's rule; OpenAI's for one message)."""
    for call_id in ids:
        if call_id in known:
            raise Refused(f"Duplicate value for 'tool_calls[].id': '{call_id}' is used already.", param=param)
        known.add(call_id)


PATH = "response_format.json_schema"
TYPES = ("json_object", "json_schema", "text")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_response_format(body: Json) -> None:
    """Raise Refused unless the request has no format, or one that the real service would take."""
    given = body.get("response_format")
    if given is None:
        return
    if not isinstance(given, dict):
        raise wrong_type("response_format", "an object", given)
    if given.get("type") not in TYPES:
        raise Refused(f"Invalid value: {given.get('type')!r}. Supported values are: {', '.join(map(repr, TYPES))}.")
    if given["type"] == "json_schema":
        _check_described(given.get("json_schema"))


def _check_described(described: object) -> None:
    if not isinstance(described, dict):
        raise Refused(f"Missing required parameter: '{PATH}'.", param=PATH, code="missing_required_parameter")
    for name in ("name", "schema"):
        if name not in described:
            path = f"{PATH}.{name}"
            raise Refused(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
    if not isinstance(described["name"], str) or not _NAME.fullmatch(described["name"]):
        raise Refused(f"Invalid '{PATH}.name': string does not match pattern.", param=f"{PATH}.name")
    if not isinstance(described["schema"], dict):
        raise wrong_type(f"{PATH}.schema", "an object", described["schema"])
    unknown = sorted(described.keys() - {"name", "schema", "description", "strict"})
    if unknown:
        raise Refused(f"Unknown parameter: '{PATH}.{unknown[0]}'.", param=f"{PATH}.{unknown[0]}")


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
