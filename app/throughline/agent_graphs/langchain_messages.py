"""Conversion of a graph's LangChain messages to ours, and back."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call

from throughline.domain import message as domain
from throughline.domain.agent_graph import GraphMessage
from throughline.domain.message import Block, Content, ImageBlock, Role, TextBlock, clean_text
from throughline.domain.prompt import PromptMessage
from throughline.domain.tool import is_json_object


def to_langchain(given: GraphMessage) -> BaseMessage:
    """Return the message as LangChain's, with its id."""
    message = given.message
    content = message.content if isinstance(message.content, str) else [_block(block) for block in message.content]
    match message.role:
        case Role.USER:
            return HumanMessage(content, id=given.id)
        case Role.ASSISTANT:
            calls, invalid = _calls(message.tool_calls)
            return AIMessage(content, id=given.id, tool_calls=calls, invalid_tool_calls=invalid)
        case Role.TOOL:
            return ToolMessage(content, id=given.id, tool_call_id=message.tool_call_id or "", name=message.name)


def _calls(calls: Sequence[domain.ToolCall]) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Return LangChain's calls, and those whose arguments are no JSON object."""
    valid = [call for call in calls if is_json_object(call.arguments or "{}")]
    invalid = [call for call in calls if call not in valid]
    made = [ToolCall(name=call.name, args=json.loads(call.arguments or "{}"), id=call.id) for call in valid]
    return made, [
        invalid_tool_call(name=call.name, args=call.arguments, id=call.id, error="no JSON object") for call in invalid
    ]


def _block(block: Block) -> str | dict[Any, Any]:  # Any: as LangChain has it
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": block.url, "detail": block.detail}}


def from_langchain(message: BaseMessage) -> PromptMessage | None:
    """Return the message as ours; None for one that no conversation has, such as a system message."""
    match message:
        case AIMessage():
            return PromptMessage(Role.ASSISTANT, _content(message), tuple(_called(message)))
        case ToolMessage():
            name = message.name or "tool"
            return PromptMessage(Role.TOOL, _content(message), tool_call_id=message.tool_call_id, name=name)
        case HumanMessage():
            return PromptMessage(Role.USER, _content(message))
        case _:
            return None


def _called(message: AIMessage) -> Iterator[domain.ToolCall]:
    for call in message.tool_calls:
        arguments = json.dumps(call["args"], ensure_ascii=False)
        yield domain.ToolCall(call["id"] or "", call["name"], clean_text(arguments))
    for broken in message.invalid_tool_calls:
        yield domain.ToolCall(broken.get("id") or "", broken.get("name") or "", clean_text(broken.get("args") or ""))


def _content(message: BaseMessage) -> Content:
    """Return text as it is; of blocks the texts and images, and other blocks as JSON text."""
    if isinstance(message.content, str):
        return clean_text(message.content)
    blocks = [read for block in message.content if (read := _read_block(block)) is not None]
    if all(isinstance(block, TextBlock) for block in blocks):
        return "".join(block.text for block in blocks if isinstance(block, TextBlock))
    return tuple(blocks)


def _read_block(block: str | Mapping[str, object]) -> Block | None:
    match block:
        case str(text) | {"type": "text", "text": str(text)}:
            return TextBlock(clean_text(text))
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "image", "url": str(url)}:
            return ImageBlock(url)
        case {"type": "image", "base64": str(data), "mime_type": str(kind)}:
            return ImageBlock(f"data:{kind};base64,{data}")
        case {"type": "thinking" | "redacted_thinking" | "reasoning" | "tool_use" | "tool_call" | "input_json_delta"}:
            return None
        case _:
            return TextBlock(clean_text(json.dumps(block, ensure_ascii=False, default=str)))


def system_text(messages: Sequence[BaseMessage], skipped_id: str) -> str:
    """Return the texts of the system messages, without that of the message `skipped_id`."""
    texts = (one.text for one in messages if isinstance(one, SystemMessage) and one.id != skipped_id)
    return "\n\n".join(clean_text(str(text)) for text in texts if text)
