"""Refuses message lists a strict provider refuses: pairing of calls and results, roles, content, ids."""

from collections.abc import Sequence

from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused
from fakes.provider_double.rules import (
    array_too_long,
    check_function_name,
    check_length,
    empty_array,
    empty_string,
    invalid_value,
    missing,
    string_in,
    wrong_type,
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
