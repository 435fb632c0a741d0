"""Refuses content blocks Anthropic refuses: empty texts, unknown fields, bad images, ids, cache markers."""

import base64
import re
from collections.abc import Callable, Mapping

from fakes.anthropic_double.refusals import Refused, missing, not_a
from fakes.provider_double.json_types import Json

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
