"""Users' texts as span attributes, for operators who ask for them by a setting of their own.

The JSON has the form of OpenTelemetry's conventions for `gen_ai.input.messages` and its relatives.
"""

import json
from collections.abc import Sequence
from typing import TypeAlias

from throughline.domain.message import Content, ImageBlock, NewMessage, Role, TextBlock, ToolCall
from throughline.domain.prompt import AnswerComplete, PromptMessage

MOST_CHARACTERS = 50_000
"""Characters of text in one attribute. The newest messages of a prompt win, and the beginning of a long text."""

Part: TypeAlias = dict[str, str]
Said: TypeAlias = dict[str, object]


def input_messages(messages: Sequence[PromptMessage | NewMessage]) -> str:
    """Return the messages as JSON, without the oldest ones if all are too long."""
    left, chosen = MOST_CHARACTERS, list[Said]()
    for message in reversed(messages):
        if left <= 0:
            break
        parts = _parts(message, left)
        left -= sum(len(text) for part in parts for text in part.values())
        chosen.append({"role": message.role.value, "parts": parts})
    return _json(chosen[::-1])


def output_messages(answer: AnswerComplete) -> str:
    """Return the answer as JSON."""
    parts = [_text_part(answer.text[:MOST_CHARACTERS])] if answer.text else []
    parts += [_call_part(call, MOST_CHARACTERS) for call in answer.tool_calls]
    return _json([{"role": Role.ASSISTANT.value, "parts": parts, "finish_reason": answer.finish_reason}])


def system_instructions(system: str) -> str:
    """Return the system message as JSON."""
    return _json([_text_part(system[:MOST_CHARACTERS])])


def cut(text: str) -> str:
    """Return the beginning of a text that is an attribute of its own."""
    return text[:MOST_CHARACTERS]


def _parts(message: PromptMessage | NewMessage, most: int) -> list[Part]:
    if message.role is Role.TOOL:
        said = "".join(part["content"] for part in _content_parts(message.content, most))
        return [{"type": "tool_call_response", "id": message.tool_call_id or "", "response": said}]
    return [*_content_parts(message.content, most), *(_call_part(call, most) for call in message.tool_calls)]


def _content_parts(content: Content, most: int) -> list[Part]:
    blocks = (TextBlock(content),) if isinstance(content, str) else content
    return [_text_part("[image]" if isinstance(block, ImageBlock) else block.text[:most]) for block in blocks]


def _text_part(text: str) -> Part:
    return {"type": "text", "content": text}


def _call_part(call: ToolCall, most: int) -> Part:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments[:most]}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
