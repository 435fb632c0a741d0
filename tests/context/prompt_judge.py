"""A judge of prompts that shares nothing with the engine: it counts and checks what a strict provider would."""

import json
import math
from collections.abc import Callable

from throughline.context.fit_prompt import MessageVariant, ShownMessage
from throughline.domain.message import Content, ImageBlock, Message, NewMessage, Role, TextBlock, is_blank, text_of
from throughline.domain.prompt import Prompt, PromptMessage


def weigh(prompt: Prompt, tools_tokens: int, count: Callable[[str], int], factor: float) -> int:
    """Return the prompt's size: every text in it, four tokens a message, three for the reply, eight a call."""
    total = tools_tokens + 3
    if prompt.system:
        total += count(prompt.system) + 4
    for message in prompt.messages:
        total += 4 + _content(message, count)
        for call in message.tool_calls:
            total += 8 + count(call.id) + count(call.name) + _arguments(call.arguments, count)
        for name in (message.tool_call_id, message.name):
            total += count(name) if name else 0
    return math.ceil(total * factor - 1e-6)


def _arguments(written: str, count: Callable[[str], int]) -> int:
    """What is written or, where it is longer, the object that is sent for it."""
    try:
        value = json.loads(written or "{}")
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        value = None
    shown = value if isinstance(value, dict) else {"_raw": written}
    sent = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    return count(written) if len(sent) <= len(written) else max(count(written), count(sent))


def _content(message: PromptMessage, count: Callable[[str], int]) -> int:
    if isinstance(message.content, str):
        return count(message.content) if message.content else 0
    total = 0
    for block in message.content:
        if isinstance(block, TextBlock):
            total += count(block.text)
        else:
            total += 1600
    return total


def faults(prompt: Prompt) -> list[str]:
    """Return what a strict provider would refuse, nothing for a valid prompt."""
    found = []
    if prompt.messages and prompt.messages[0].role is not Role.USER:
        found.append("the first message is not the user's")
    seen: set[str] = set()
    index = 0
    while index < len(prompt.messages):
        message = prompt.messages[index]
        index += 1
        found += _message_faults(message, index)
        if not message.tool_calls:
            continue
        for call in message.tool_calls:
            if not call.id or call.id in seen:
                found.append(f"call id {call.id!r} is empty or used twice")
            seen.add(call.id)
            answer = prompt.messages[index] if index < len(prompt.messages) else None
            if answer is None or answer.role is not Role.TOOL or answer.tool_call_id != call.id:
                found.append(f"call {call.id!r} has no result right after it")
                break
            index += 1
            if not _is_visible(answer):
                found.append("an empty result")
    return found


def anthropic_faults(prompt: Prompt) -> list[str]:
    """Return what Anthropic's API would refuse once neighbours of one role are one message, as its clients send them.

    Results are the user's; those of a call stand at the start of the very next user message, each id once.
    """
    merged = _merged(prompt)
    found = [] if not merged or merged[0][0] == "user" else ["the first message is not the user's"]
    used: set[str] = set()
    asked: list[str] = []
    for role, blocks in merged:
        results = [block for kind, block in blocks if kind == "tool_result"]
        calls = [block for kind, block in blocks if kind == "tool_use"]
        if sorted(results) != sorted(asked):
            found.append(f"results of {results} where {asked} were asked for")
        if any(kind != "tool_result" for kind, _ in blocks[: len(results)]):
            found.append("a result stands behind other content")
        if any(kind == "text" and not _shows_something(text) for kind, text in blocks):
            found.append("an empty text")
        if not blocks or (role == "user" and calls) or used & set(calls):
            found.append("an empty message, the user's call, or an id used twice")
        used |= set(calls)
        asked = calls
    return found + (["a call at the end has no result"] if asked else [])


def _merged(prompt: Prompt) -> list[tuple[str, list[tuple[str, str]]]]:
    merged: list[tuple[str, list[tuple[str, str]]]] = []
    for message in prompt.messages:
        role = "assistant" if message.role is Role.ASSISTANT else "user"
        if not merged or merged[-1][0] != role:
            merged.append((role, []))
        merged[-1][1].extend(_blocks(message))
    return merged


def _blocks(message: PromptMessage) -> list[tuple[str, str]]:
    if message.role is Role.TOOL:
        return [("tool_result", message.tool_call_id or "")]
    blocks = (TextBlock(message.content),) if isinstance(message.content, str) else message.content
    said = [("text", block.text) if isinstance(block, TextBlock) else ("image", block.url) for block in blocks]
    if message.tool_calls and message.content == "":
        said = []
    return [*said, *(("tool_use", call.id) for call in message.tool_calls)]


def _shows_something(text: str) -> bool:
    return bool(text.strip().strip("\u200b\u200c\u200d\u2060\ufeff").strip())


def _message_faults(message: PromptMessage, index: int) -> list[str]:
    if message.role is Role.TOOL:
        return [f"message {index} is a result without a call"]
    found = []
    if message.tool_call_id is not None:
        found.append(f"message {index} carries a call id but is no result")
    if message.role is Role.USER and message.tool_calls:
        found.append(f"message {index} is the user's and calls tools")
    if not message.tool_calls and not _is_visible(message):
        found.append(f"message {index} is empty")
    if message.tool_calls and message.content and not _is_visible(message):
        found.append(f"message {index} has blank text beside its calls")
    return found


def _is_visible(message: PromptMessage) -> bool:
    invisible = "\u200b\u200c\u200d\u2060\ufeff"
    if isinstance(message.content, str):
        return bool(message.content.strip().strip(invisible).strip())
    return bool(message.content) and all(
        isinstance(block, ImageBlock) or block.text.strip().strip(invisible).strip() for block in message.content
    )


def positions(prompt: Prompt) -> list[int]:
    """Return the positions of the stored messages shown, in the prompt's order."""
    return [message.position for message in prompt.messages if message.position is not None]


def begins_alike(shown: Content, content: Content) -> bool:
    """The same text, or its beginning, or where there is hardly any room a mark in its place."""
    first = next((text for text in texts(content) if not is_blank(text)), "")
    return first.strip()[:3] in text_of(shown) or "left out" in text_of(shown) or text_of(shown) in {"[…]", "…"}


def texts(content: Content) -> list[str]:
    return [content] if isinstance(content, str) else [block.text for block in content if isinstance(block, TextBlock)]


def is_same_text(shown: Content, content: Content) -> bool:
    """Blank texts have a placeholder, or are left out beside others."""
    if isinstance(content, str):
        return shown == content or (is_blank(content) and isinstance(shown, str))
    kept = tuple(block for block in content if not isinstance(block, TextBlock) or not is_blank(block.text))
    return shown == kept or not kept


def is_as_stored(shown: PromptMessage, row: Message | NewMessage) -> bool:
    arguments = [call.arguments for call in shown.tool_calls]
    is_same = row.role is Role.USER or arguments == [call.arguments for call in row.tool_calls]
    return is_same and is_same_text(shown.content, row.content)


def is_sendable(row: Message) -> bool:
    """An answer without a text is left out, pinned or not."""
    return row.role is not Role.ASSISTANT or bool(row.tool_calls) or not is_same_text("", row.content)


def is_true(item: ShownMessage, row: Message, shown: PromptMessage | None) -> bool:
    match item.form:
        case MessageVariant.WHOLE:
            return shown is not None and is_as_stored(shown, row)
        case MessageVariant.PRUNED:
            return shown is not None and row.role is Role.TOOL and not is_as_stored(shown, row)
        case MessageVariant.TRUNCATED:
            return shown is not None and not is_as_stored(shown, row)
        case MessageVariant.FOLDED | MessageVariant.SUMMARISED | MessageVariant.TRIMMED | MessageVariant.LEFT_OUT:
            return shown is None and item.tokens == 0
