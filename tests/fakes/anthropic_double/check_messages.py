"""Refuses message lists Anthropic refuses: who speaks first and last, empty contents, pairing of calls and results.

Neighbours of one role are taken, as the real service merges them; results must still follow their calls at once.
"""

from collections.abc import Sequence

from fakes.anthropic_double.check_blocks import ALLOWED, check_block, check_text
from fakes.anthropic_double.refusals import Refused, missing, not_a
from fakes.provider_double.json_types import Json


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
