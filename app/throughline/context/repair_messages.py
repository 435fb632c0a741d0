"""Repair of any message sequence for strict providers, in the view only; the stored messages do not change.

Afterwards every tool call has exactly one result directly after it, no result lacks its call, no message is empty, ids
are unique, and the first message is the user's. A valid sequence is returned unchanged.
"""

from collections.abc import Sequence
from dataclasses import replace

from throughline.context.groups import Group, group_messages
from throughline.domain.message import Content, ImageBlock, Role, ToolCall
from throughline.domain.prompt import PromptMessage
from throughline.domain.text import is_blank

MISSING_RESULT = "[no result was recorded for this call]"
EMPTY_USER_TEXT = "[empty message]"
EMPTY_RESULT = "[no output]"
OPENING = "[The conversation goes on from earlier messages.]"


def repair_messages(messages: Sequence[PromptMessage], opening: str = OPENING) -> tuple[PromptMessage, ...]:
    """Return the messages in a form that every provider accepts; positions and valid messages are kept.

    Results move directly behind their calls, and a placeholder stands for a missing result. Results without a call and
    empty answers are left out. `opening` is the user message put first if another role would be first.
    """
    if is_valid(messages):
        return tuple(messages)
    used: dict[str, int] = {}
    repaired: list[PromptMessage] = []
    for group in group_messages(messages):
        repaired.extend(_repair_group(group, used))
    if repaired and repaired[0].role is not Role.USER:
        repaired.insert(0, PromptMessage(role=Role.USER, content=opening))
    return tuple(repaired)


def is_valid(messages: Sequence[PromptMessage]) -> bool:
    """Return whether a strict provider accepts the messages as they are.

    The messages are read once; the usual case, in which all are valid, is fast.
    """
    if messages and messages[0].role is not Role.USER:
        return False
    used: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        role, content = message.role, message.content
        is_outside_calls = message.tool_call_id is None and not (waiting or message.tool_calls)
        if is_outside_calls and role is not Role.TOOL and type(content) is str and content[:1].isalnum():
            continue  # plain text outside tool calls: by far the most frequent case
        is_taken = _is_next_result(message, waiting) if role is Role.TOOL else _opens(message, waiting, used)
        if not is_taken:
            return False
    return not waiting


def _is_next_result(message: PromptMessage, waiting: list[str]) -> bool:
    """Remove the first open call and return whether `message` answers it."""
    return bool(waiting) and waiting.pop(0) == message.tool_call_id and _has_content(message.content)


def _opens(message: PromptMessage, waiting: list[str], used: set[str]) -> bool:
    """Add the message's calls to `waiting`, and return whether the message is valid at this position."""
    if waiting or not _is_plain_or_call(message):
        return False
    waiting.extend(call.id for call in message.tool_calls)
    return not waiting or _are_new(waiting, used)


def _is_plain_or_call(message: PromptMessage) -> bool:
    if message.tool_calls:
        is_said_or_absent = not message.content or _has_content(message.content)
        return message.role is Role.ASSISTANT and is_said_or_absent and message.tool_call_id is None
    return message.tool_call_id is None and _has_content(message.content)


def _are_new(ids: list[str], used: set[str]) -> bool:
    """Record the ids as used; return False if one is empty or was used before."""
    before = len(used)
    used.update(ids)
    return len(used) - before == len(ids) and "" not in ids


def _has_content(content: Content) -> bool:
    """Return whether the content has visible text or images, and no blank block."""
    if isinstance(content, str):
        return content[:1].isalnum() or not is_blank(content)
    return bool(content) and all(isinstance(block, ImageBlock) or not is_blank(block.text) for block in content)


def _repair_group(group: Group[PromptMessage], used: dict[str, int]) -> list[PromptMessage]:
    match group.head.role:
        case Role.USER:
            return [_plain(group.head, _content_or(group.head.content, EMPTY_USER_TEXT))]
        case Role.ASSISTANT if group.head.tool_calls:
            return _repair_calls(group, used)
        case Role.ASSISTANT:
            content = _content_or(group.head.content, "")
            return [_plain(group.head, content)] if content else []
        case Role.TOOL:
            return []


def _repair_calls(group: Group[PromptMessage], used: dict[str, int]) -> list[PromptMessage]:
    """Return the calling message and one result for each of its calls, under ids that were not used before.

    `used` holds the used ids, each with the last number that was appended to it.
    """
    head = group.head
    calls = tuple(_with_unique_id(call, used) for call in head.tool_calls)
    shown = [_changed(head, _content_or(head.content, ""), calls, None)]
    for call, result in zip(calls, group.results, strict=True):
        if result is None:
            missing = PromptMessage(Role.TOOL, MISSING_RESULT, tool_call_id=call.id, name=call.name)
            shown.append(missing)
        else:
            content = _content_or(result.content, EMPTY_RESULT)
            shown.append(_changed(result, content, (), call.id))
    return shown


def _with_unique_id(call: ToolCall, used: dict[str, int]) -> ToolCall:
    unique, number = call.id, used.get(call.id, 1)
    while not unique or unique in used:
        number += 1
        unique = f"{call.id or 'call'}_{number}"
    used[call.id] = number
    used.setdefault(unique, 1)
    return call if unique == call.id else replace(call, id=unique)


def _plain(message: PromptMessage, content: Content) -> PromptMessage:
    return _changed(message, content, (), None)


def _changed(
    message: PromptMessage, content: Content, calls: tuple[ToolCall, ...], call_id: str | None
) -> PromptMessage:
    """Return the message with these values.

    It is the same object if it already has them, so that its token count stays valid.
    """
    if (message.content, message.tool_calls, message.tool_call_id) == (content, calls, call_id):
        return message
    return replace(message, content=content, tool_calls=calls, tool_call_id=call_id)


def _content_or(content: Content, placeholder: str) -> Content:
    """Return the content without blank blocks, or the placeholder if nothing remains."""
    if isinstance(content, str):
        return placeholder if is_blank(content) else content
    kept = tuple(block for block in content if isinstance(block, ImageBlock) or not is_blank(block.text))
    return kept or placeholder
