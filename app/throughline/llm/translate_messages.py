"""Conversion of our prompts to LangChain's messages, including messages that another provider's model wrote."""

import re
from collections.abc import Sequence
from hashlib import sha256

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages import ToolCall as LangChainToolCall

from throughline.domain.identity_cache import ComputedCache, IdentityCache, has_short_arguments
from throughline.domain.json_types import JsonObject
from throughline.domain.message import Content, ImageBlock, Role, TextBlock, text_of
from throughline.domain.prompt import Prompt, PromptMessage, ToolSpec
from throughline.domain.tool import send_again
from throughline.llm.reasoning_parts import content_blocks

EMPTY_RESULT = "(no output)"
CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Tool call ids that every provider accepts: OpenAI refuses longer ones, Anthropic other characters."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME = 64
_MADE_ID = re.compile(r"call_[0-9a-f]{32}")

_argument_texts: IdentityCache[BaseMessage, tuple[str, ...]] = IdentityCache()
"""The arguments of a message's calls as text, for which LangChain's messages have no field."""

_parts: IdentityCache[BaseMessage, tuple[JsonObject, ...]] = IdentityCache()
"""The parts of a message's reasoning that are sent back, for which LangChain's messages have no field."""


def to_langchain(prompt: Prompt, *, may_share: bool = False) -> list[BaseMessage]:
    """Return the prompt as LangChain messages, the system prompt first.

    `may_share` returns the same LangChain message for the same message each time; it is for models that change none.
    """
    system: list[BaseMessage] = [SystemMessage(prompt.system)] if prompt.system else []
    make = _shared_or_new if may_share else _message
    return [*system, *map(make, prompt.messages)]


def argument_texts(message: BaseMessage) -> tuple[str, ...]:
    """Return the arguments of each call of a message from `to_langchain`, for wire formats that take them as text."""
    return _argument_texts.find(message) or ()


def returned_parts(message: BaseMessage) -> tuple[JsonObject, ...]:
    """Return the parts of reasoning of a message from `to_langchain`, for wire formats with members for them."""
    return _parts.find(message) or ()


def to_tools(specs: Sequence[ToolSpec]) -> list[dict[str, object]]:
    """Return tool specs in OpenAI's form, which every LangChain model's `bind_tools` accepts."""
    return [{"type": "function", "function": _function(spec)} for spec in specs]


def _function(spec: ToolSpec) -> dict[str, object]:
    strict = {} if spec.strict is None else {"strict": spec.strict}
    return {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters), **strict}


def _message(message: PromptMessage) -> BaseMessage:
    match message.role:
        case Role.USER:
            return HumanMessage(_content(message.content))
        case Role.ASSISTANT:
            return _said(message)
        case Role.TOOL:
            return ToolMessage(
                _content(message.content) or EMPTY_RESULT,
                tool_call_id=_call_id(message.tool_call_id or ""),
                name=_name(message.name or "tool"),
            )


_shared = ComputedCache(_message)


def _shared_or_new(message: PromptMessage) -> BaseMessage:
    return _shared.of(message) if has_short_arguments(message.tool_calls) else _message(message)


def _content(content: Content) -> str | list[str | dict[str, object]]:
    return content if isinstance(content, str) else [_block(block) for block in content]


def _block(block: TextBlock | ImageBlock) -> dict[str, object]:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "text": text}
        case ImageBlock(url=url, detail=detail):
            return {"type": "image_url", "image_url": {"url": url, "detail": detail}}


def _said(message: PromptMessage) -> AIMessage:
    # Anthropic and Google take arguments as an object, and LangChain drops calls it cannot parse, which would leave
    # their error result an orphan.
    sent = [send_again(call.arguments) for call in message.tool_calls]
    calls = [
        LangChainToolCall(name=_name(call.name), args=arguments.value, id=_call_id(call.id))
        for call, arguments in zip(message.tool_calls, sent, strict=True)
    ]
    text, parts = text_of(message.content), message.reasoning.parts if message.reasoning else ()
    made = AIMessage(content_blocks(parts, text) or text, tool_calls=calls)
    if parts:
        _parts.keep(made, parts)
    if sent:
        _argument_texts.keep(made, tuple(arguments.text for arguments in sent))
    return made


def _name(name: str) -> str:
    """Return the tool's name in a form that every provider accepts.

    Models invent names with dots and spaces, and have to be shown them again.
    """
    return _NOT_IN_NAMES.sub("_", name)[:_MAX_NAME] or "unknown_tool"


def _call_id(call_id: str) -> str:
    """Return an id that every provider accepts, the same for a call and its result and in every prompt.

    An id that looks like one made here is replaced as well, so that no two ids become the same.
    """
    is_taken = CALL_ID.fullmatch(call_id) and not _MADE_ID.fullmatch(call_id)
    return call_id if is_taken else f"call_{sha256(call_id.encode()).hexdigest()[:32]}"
