"""Conversion of our prompts to LangChain's messages, including messages that another provider's model wrote."""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages import ToolCall as LangChainToolCall

from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.identity_cache import ComputedCache, IdentityCache, has_short_arguments
from throughline.domain.message import Content, ImageBlock, Role, TextBlock, text_of
from throughline.domain.prompt import Prompt, PromptMessage, ResponseFormat, ToolSpec
from throughline.domain.tool import send_again
from throughline.llm.read_reasoning import content_blocks

# The response format of a request in the wire formats of OpenAI.
#
# It is sent as a further member of the body: LangChain's own argument for it makes the SDK parse the answer, and fail
# where it does not fit.

MEMBER = "response_format"


def wire_format(wanted: ResponseFormat) -> dict[str, JsonValue]:
    """Return the member of the body for chat completions."""
    described: dict[str, JsonValue] = {"name": wanted.name, "schema": dict(wanted.schema)}
    if wanted.description:
        described["description"] = wanted.description
    if wanted.strict is not None:
        described["strict"] = wanted.strict
    return {MEMBER: {"type": "json_schema", "json_schema": described}}


def moved_to_text(payload: Mapping[str, Any]) -> dict[str, Any]:  # Any: parsed JSON
    """Return a request of OpenAI's newer wire format, in which the member is called `text.format`."""
    body = dict(payload.get("extra_body") or {})
    wanted = body.pop(MEMBER, None)
    if wanted is None or "json_schema" not in wanted:
        return dict(payload)
    text = {**(payload.get("text") or {}), "format": {"type": "json_schema", **wanted["json_schema"]}}
    return {**payload, "extra_body": body, "text": text}


# Markers for Anthropic's prompt cache: after the system prompt, and at the ends of this and earlier prompts.
#
# The prompt of one call begins with the whole prompt of the call before, unless a stage has changed the view in
# between. The ends of earlier prompts are marked, too: the cache looks back only about 20 blocks from a marker, and one
# step of a tool loop may add more.

MOST_MARKERS = 4
"""Most markers of one request; Anthropic refuses more."""

_MARKER = {"type": "ephemeral"}


def with_cache_markers(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages with at most `MOST_MARKERS` markers.

    All contents except the model's own become lists of blocks, marked or not: a message must be the same in every call,
    and only blocks can be marked.
    """
    system = [index for index, message in enumerate(messages) if isinstance(message, SystemMessage)]
    ends = [index for index in range(len(messages)) if index not in system and _ends_a_prompt(messages, index)]
    marked = {*system, *ends[len(system) - MOST_MARKERS :]}
    return [_in_blocks(message, is_marked=index in marked) for index, message in enumerate(messages)]


def _ends_a_prompt(messages: Sequence[BaseMessage], index: int) -> bool:
    """Return whether the model answered directly after this message, or is to answer it now."""
    is_before_answer = index + 1 == len(messages) or isinstance(messages[index + 1], AIMessage)
    return is_before_answer and not isinstance(messages[index], AIMessage)


def _in_blocks(message: BaseMessage, *, is_marked: bool) -> BaseMessage:
    if isinstance(message, AIMessage):
        return message
    content = message.content
    blocks: list[str | dict[str, object]] = [{"type": "text", "text": content}]
    if isinstance(content, list):
        blocks = list(content)
    if is_marked and blocks:
        blocks[-1] = _marked(blocks[-1])
    return message.model_copy(update={"content": blocks})


def _marked(block: str | dict[str, object]) -> dict[str, object]:
    if isinstance(block, str):
        return {"type": "text", "text": block, "cache_control": _MARKER}
    image = block.get("image_url")
    if isinstance(image, dict):  # LangChain would drop the marker of a block in OpenAI's form
        return {"type": "image", "url": image["url"], "cache_control": _MARKER}
    return {**block, "cache_control": _MARKER}


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
