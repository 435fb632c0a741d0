"""What Anthropic checks of messages, blocks and tools, refused with its own status, wording and error body."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fakes.provider_double.json_types import Json


@dataclass(slots=True)
class Refused(Exception):
    """The request is refused; raised by the checks, rendered by the server."""

    message: str
    status: int = 400
    type: str = "invalid_request_error"

    def body(self) -> Json:
        """Return Anthropic's error body."""
        return {"type": "error", "error": {"type": self.type, "message": self.message}, "request_id": "req_double"}


def too_long(prompt_tokens: int, window_tokens: int) -> Refused:
    """A prompt that is over the window alone."""
    return Refused(f"prompt is too long: {prompt_tokens} tokens > {window_tokens} maximum")


def over_limit(prompt_tokens: int, max_tokens: int, window_tokens: int) -> Refused:
    """A prompt that is over the window together with the answer it allows."""
    return Refused(
        f"input length and `max_tokens` exceed context limit: {prompt_tokens} + {max_tokens} > {window_tokens}, "
        "decrease input length or `max_tokens` and try again"
    )


def missing(path: str) -> Refused:
    """A field that must be there."""
    return Refused(f"{path}: Field required")


def not_a(kind: str, path: str) -> Refused:
    """A value of the wrong JSON type."""
    return Refused(f"{path}: Input should be a valid {kind}")


IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
MAX_IMAGE_BYTES = 5 * 1024 * 1024
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_FIELDS = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
ALLOWED = {
    "user": ("text", "image", "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
    "system": ("text",),
}


def check_block(block: object, allowed: tuple[str, ...], path: str) -> None:
    """Raise Refused for the first thing that is wrong with one block."""
    if not isinstance(block, dict):
        raise not_a("dictionary", path)
    kind = block.get("type")
    if kind not in allowed:
        expected = ", ".join(f"'{name}'" for name in allowed)
        raise Refused(
            f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {expected}"
        )
    unknown = set(block) - _FIELDS[kind]
    if unknown:
        raise Refused(f"{path}.{kind}.{min(unknown)}: Extra inputs are not permitted")
    _check_marker(block.get("cache_control"), f"{path}.{kind}.cache_control")
    _CHECKS[kind](block, f"{path}.{kind}")


def check_name(name: object, path: str) -> None:
    """Refuse a name that is no tool's name."""
    if not isinstance(name, str):
        raise missing(path) if name is None else not_a("string", path)
    if not _NAME.fullmatch(name):
        raise Refused(f"{path}: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")


def check_text(text: object, path: str) -> None:
    """Refuse a text that says nothing; `path` begins with the field the error is reported for."""
    if not isinstance(text, str):
        raise missing(f"{path}.text") if text is None else not_a("string", f"{path}.text")
    field = path.partition(".")[0]
    if not text:
        raise Refused(f"{field}: text content blocks must be non-empty")
    if not text.strip():
        raise Refused(f"{field}: text content blocks must contain non-whitespace text")


def _check_marker(marker: object, path: str) -> None:
    if marker is None:
        return
    if not isinstance(marker, dict) or marker.get("type") != "ephemeral" or set(marker) - {"type", "ttl"}:
        raise Refused(f"{path}: Input should be {{'type': 'ephemeral'}}")
    if marker.get("ttl", "5m") not in {"5m", "1h"}:
        raise Refused(f"{path}.ttl: Input should be '5m' or '1h'")


def _check_text_block(block: Json, path: str) -> None:
    check_text(block.get("text"), path)


def _check_image(block: Json, path: str) -> None:
    source = block.get("source")
    if not isinstance(source, dict):
        raise missing(f"{path}.source")
    match source.get("type"):
        case "base64":
            _check_base64(source, f"{path}.source.base64")
        case "url":
            if set(source) != {"type", "url"} or not str(source["url"]).startswith("https://"):
                raise Refused(f"{path}.source.url.url: Only HTTPS URLs are supported.")
        case other:
            raise Refused(
                f"{path}.source: Input tag '{other}' does not match any of the expected tags: 'base64', 'url'"
            )


def _check_base64(source: Json, path: str) -> None:
    if set(source) != {"type", "media_type", "data"}:
        raise Refused(f"{path}: Extra inputs are not permitted, or a field is missing")
    if source["media_type"] not in IMAGE_TYPES:
        raise Refused(f"{path}.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'")
    try:
        size = len(base64.b64decode(source["data"], validate=True))
    except ValueError as error:
        raise Refused(f"{path}.data: Invalid base64 data") from error
    if not size:
        raise Refused(f"{path}: image cannot be empty")
    if size > MAX_IMAGE_BYTES:
        raise Refused(f"{path}: image exceeds 5 MB maximum: {size} bytes > {MAX_IMAGE_BYTES} bytes")


def _check_tool_use(block: Json, path: str) -> None:
    _check_id(block.get("id"), f"{path}.id")
    check_name(block.get("name"), f"{path}.name")
    if not isinstance(block.get("input"), dict):
        raise missing(f"{path}.input") if "input" not in block else not_a("dictionary", f"{path}.input")


def _check_tool_result(block: Json, path: str) -> None:
    _check_id(block.get("tool_use_id"), f"{path}.tool_use_id")
    if not isinstance(block.get("is_error", False), bool):
        raise not_a("boolean", f"{path}.is_error")
    content = block.get("content")
    if not content and block.get("is_error"):
        raise Refused(f"{path}: content cannot be empty if `is_error` is true")
    if content is not None and not isinstance(content, str | list):
        raise not_a("list", f"{path}.content")
    for index, inner in enumerate(content if isinstance(content, list) else ()):
        if isinstance(inner, dict) and "cache_control" in inner:
            raise Refused(f"{path}.content.{index}.cache_control: Extra inputs are not permitted")
        check_block(inner, ("text", "image"), f"{path}.content.{index}")


def _check_written(block: Json, path: str) -> None:
    """Refuse a block of thinking that lacks one of its texts."""
    for name in _FIELDS[block["type"]] - {"type"}:
        if not isinstance(block.get(name), str):
            raise missing(f"{path}.{name}") if block.get(name) is None else not_a("string", f"{path}.{name}")


def _check_id(value: object, path: str) -> None:
    if not isinstance(value, str):
        raise missing(path) if value is None else not_a("string", path)
    if not _ID.fullmatch(value):
        raise Refused(f"{path}: String should match pattern '^[a-zA-Z0-9_-]+$'")


_CHECKS: Mapping[str, Callable[[Json, str], None]] = {
    "text": _check_text_block,
    "image": _check_image,
    "tool_use": _check_tool_use,
    "tool_result": _check_tool_result,
    "thinking": _check_written,
    "redacted_thinking": _check_written,
}


CHOICES = ("auto", "any", "tool", "none")
_CHECK_TOOLS_FIELDS = {"type", "name", "description", "input_schema", "cache_control", "strict"}
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
    unknown = set(tool) - _CHECK_TOOLS_FIELDS
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


def check_messages(messages: object) -> None:
    """Raise Refused for the first thing that is wrong with the messages."""
    if messages is None:
        raise missing("messages")
    if not isinstance(messages, list):
        raise not_a("list", "messages")
    if not messages:
        raise Refused("messages: at least one message is required")
    for index, message in enumerate(messages):
        _check_message(message, f"messages.{index}")
    if messages[0]["role"] != "user":
        raise Refused('messages: first message must use the "user" role')
    if messages[-1]["role"] != "user":
        raise Refused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    _check_pairs(messages)


def check_system(system: object) -> None:
    """Raise Refused for what is wrong with the system prompt."""
    if isinstance(system, str):
        check_text(system, "system")
    elif isinstance(system, list):
        for index, block in enumerate(system):
            check_block(block, ALLOWED["system"], f"system.{index}")
    elif system is not None:
        raise not_a("list", "system")


def blocks_of(message: Json) -> list[Json]:
    """Return the blocks of a valid message; a text is one block."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _check_message(message: object, path: str) -> None:
    if not isinstance(message, dict):
        raise not_a("dictionary", path)
    role = message.get("role")
    if role not in {"user", "assistant"}:
        raise Refused(f"{path}.role: Input should be 'user' or 'assistant'")
    unknown = set(message) - {"role", "content"}
    if unknown:
        raise Refused(f"{path}.{min(unknown)}: Extra inputs are not permitted")
    _check_content(message.get("content"), role, path)


def _check_content(content: object, role: str, path: str) -> None:
    if content is None:
        raise missing(f"{path}.content")
    if not content:
        raise Refused(f"{path}: {'user' if role == 'user' else 'all'} messages must have non-empty content")
    if isinstance(content, str):
        check_text(content, "messages")
        return
    if not isinstance(content, list):
        raise not_a("list", f"{path}.content")
    for index, block in enumerate(content):
        check_block(block, ALLOWED[role], f"{path}.content.{index}")


def _check_pairs(messages: Sequence[Json]) -> None:
    """Each message with calls is followed at once by one that begins with exactly one result for each of them."""
    known: set[str] = set()
    waiting: list[str] = []
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        _check_results(blocks, waiting, index)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(set(waiting)) != len(waiting) or known & set(waiting):
            raise Refused(f"messages.{index}: `tool_use` ids must be unique")
        known.update(waiting)


def _check_results(blocks: Sequence[Json], waiting: Sequence[str], index: int) -> None:
    ids = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    for place, block in enumerate(blocks):
        if block["type"] == "tool_result" and block["tool_use_id"] not in waiting:
            raise Refused(
                f"messages.{index}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{block['tool_use_id']}. Each `tool_result` block must have a corresponding `tool_use` block in the "
                "previous message."
            )
    repeated = next((call_id for call_id in ids if ids.count(call_id) > 1), None)
    if repeated is not None:
        raise Refused(
            f"messages.{index}: each tool_use must have a single result. Found multiple `tool_result` blocks with "
            f"id: {repeated}"
        )
    first = [block.get("tool_use_id") for block in blocks[: len(waiting)]]
    unanswered = [call_id for call_id in waiting if call_id not in first]
    if unanswered:
        raise Refused(
            f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(unanswered)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )
