"""Conversion of our prompts to LangChain's messages, also of another provider's model, and of reasoning from them."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages import ToolCall as LangChainToolCall

from throughline.context.identity_cache import ComputedCache, IdentityCache, has_short_arguments
from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.errors import AnswerTooLong
from throughline.domain.message import Content, ImageBlock, Role, TextBlock, clean_text, text_of
from throughline.domain.prompt import Prompt, PromptMessage, ResponseFormat, ToolSpec
from throughline.domain.tool import send_again

# A model's reasoning is in `additional_kwargs` of LangChain's chunks with our own OpenAI wire and the packages of
# DeepSeek, Ollama, Groq and xAI. Anthropic, Google, Bedrock and OpenAI's Responses API have blocks in the content.

NAMES = ("reasoning_content", "reasoning", "thinking")
"""Members with a piece of reasoning as text.

`reasoning_content` is sent by DeepSeek, SGLang, llama.cpp, LiteLLM and Qwen, `reasoning` by vLLM, OpenRouter, Ollama
and LM Studio. A server that sends two of them says the same in both.
"""

DETAILS = "reasoning_details"
"""OpenRouter's list of parts, with what a provider wants back. Their texts are in `reasoning` too, or only here."""


REQUIRING_HOSTS = ("deepseek.com", "moonshot.ai", "moonshot.cn")
"""Hosts of servers that refuse a step with tool calls without its `reasoning_content`."""


def wants_content(address: str) -> bool:
    """Return whether the server at the address requires `reasoning_content` back."""
    host = (urlsplit(address).hostname or "").lower()
    return any(host == known or host.endswith(f".{known}") for known in REQUIRING_HOSTS)


def extras_in(delta: Mapping[str, Any]) -> dict[str, Any]:  # Any: parsed JSON
    """Return `extra_content` of the delta's tool calls, by the id of the call: Gemini's signatures."""
    calls = [call for call in delta.get("tool_calls") or () if isinstance(call, dict)]
    return {call["id"]: extra for call in calls if call.get("id") and (extra := call.get("extra_content"))}


def reasoning_in(delta: Mapping[str, Any]) -> str:  # Any: parsed JSON
    """Return the piece of reasoning in a delta of an answer, '' if there is none."""
    for name in NAMES:
        if isinstance(said := delta.get(name), str) and said:
            return said
    return "".join(_text_of(part) for part in details_in(delta))


def details_in(delta: Mapping[str, Any]) -> list[dict[str, Any]]:  # Any: parsed JSON
    """Return the parts of reasoning in a delta of an answer."""
    details = delta.get(DETAILS)
    return [part for part in details if isinstance(part, dict)] if isinstance(details, list) else []


def _text_of(part: Mapping[str, Any]) -> str:  # Any: parsed JSON
    said = part.get("text") or part.get("summary")
    return said if isinstance(said, str) else ""


MEMBER = "reasoning_content"
"""The member of `additional_kwargs` with a piece of reasoning."""

PARAGRAPH = "\n\n"


def read_reasoning(chunk: AIMessageChunk) -> str:
    """Return the piece of reasoning in the chunk, '' if there is none."""
    said = chunk.additional_kwargs.get(MEMBER)
    if isinstance(said, str) and said:
        return said
    return "".join(_of_block(block) for block in reasoning_blocks(chunk)) or _of_summary(chunk.additional_kwargs)


def reasoning_blocks(chunk: AIMessageChunk) -> Iterator[Mapping[str, object]]:
    """Yield the content blocks of the chunk that are no text for the user."""
    for block in [] if isinstance(chunk.content, str) else chunk.content:
        if isinstance(block, Mapping) and block.get("type") != "text":
            yield block


def _of_block(block: Mapping[str, object]) -> str:
    match block:
        case {"type": "thinking", "thinking": str(text)}:  # Anthropic, Google
            return text
        case {"type": "reasoning", "reasoning": str(text)}:  # LangChain's own form
            return text
        case {"type": "reasoning_content", "reasoning_content": {"text": str(text)}}:  # Bedrock
            return text
        case {"type": "reasoning"}:
            return _of_parts(block)
        case _:
            return ""


def _of_summary(members: Mapping[str, object]) -> str:
    """Return the reasoning of OpenAI's Responses API in LangChain's older form."""
    reasoning = members.get("reasoning")
    return _of_parts(reasoning) if isinstance(reasoning, Mapping) else ""


def _of_parts(reasoning: Mapping[str, object]) -> str:
    """Return the text of the parts of a summary. A further part opens with an empty text: it is a new paragraph."""
    parts = reasoning.get("summary")
    texts = []
    for part in parts if isinstance(parts, list) else ():
        match part:
            case {"text": "", "index": int(index)} if index > 0:
                texts.append(PARAGRAPH)
            case {"text": str(text)}:
                texts.append(text)
            case _:
                pass
    return "".join(texts)


# Parts of reasoning that a provider wants back with a step, while the run that made it goes on.
#
# They are collected from LangChain's chunks, kept with the step, and put into the step's message in the next call of
# the same model. Each provider wants other parts; most want none.

GEMINI_SIGNATURES = "__gemini_function_call_thought_signatures__"
"""The member of `additional_kwargs` in which LangChain keeps Gemini's signatures, by the id of the call."""


class PartKind(StrEnum):
    """The kinds of parts, each with the reason to send it back.

    - THINKING: Anthropic's signed blocks, without which a step with tool calls is answered without thinking.
    - SIGNATURE: Gemini's signature of a tool call, without which Gemini 3 refuses the call.
    - EXTRA: the same on the OpenAI wire format, as `extra_content` of a tool call.
    - DETAILS: OpenRouter's `reasoning_details`, which hold what the provider behind it wants.
    - CONTENT: `reasoning_content`, which DeepSeek and Moonshot require with every step that calls tools.
    """

    THINKING = "thinking"
    SIGNATURE = "function_call_signature"
    EXTRA = "extra_content"
    DETAILS = "reasoning_details"
    CONTENT = "reasoning_content"


NO_PARTS: frozenset[PartKind] = frozenset()
_OF_CALLS = {PartKind.SIGNATURE: GEMINI_SIGNATURES, PartKind.EXTRA: PartKind.EXTRA.value}

DEEPEST = 4
"""Levels of lists and members that are kept of a part."""


@dataclass(slots=True)
class _Growing:
    """A part while its pieces arrive: `pieces` are joined, `whole` are the other members.

    `characters` of the answer's text came between the part before and this one.
    """

    characters: int = 0
    pieces: dict[str, list[str]] = field(default_factory=dict)
    whole: dict[str, JsonValue] = field(default_factory=dict)

    def joined(self) -> dict[str, JsonValue]:
        return {**self.whole, **{name: clean_text("".join(pieces)) for name, pieces in self.pieces.items()}}


@dataclass(slots=True)
class PartsAssembly:
    """The parts of one answer while its chunks arrive. Only `kinds` are kept, of at most `max_characters`."""

    kinds: frozenset[PartKind]
    max_characters: int
    _blocks: dict[object, _Growing] = field(default_factory=dict)
    _details: dict[tuple[object, object], _Growing] = field(default_factory=dict)
    _of_calls: dict[tuple[PartKind, str], JsonValue] = field(default_factory=dict)
    _characters: int = 0
    _answered: int = 0

    def add(self, chunk: AIMessageChunk, answered: int) -> None:
        """Add a chunk. `answered` is the number of characters of the answer's text before it. Raises AnswerTooLong."""
        if PartKind.THINKING in self.kinds:
            for block in reasoning_blocks(chunk):
                self._take_block(block, answered)
        if PartKind.DETAILS in self.kinds:
            for detail in chunk.additional_kwargs.get(PartKind.DETAILS.value) or ():
                self._take_detail(detail)
        for kind in _OF_CALLS.keys() & self.kinds:
            for call_id, value in (chunk.additional_kwargs.get(_OF_CALLS[kind]) or {}).items():
                self._of_calls[kind, call_id] = self._counted(_cleaned(value))

    def finish(self, call_ids: Sequence[str], content: str) -> tuple[JsonObject, ...]:
        """Return the parts. `call_ids` are the ids of the answer's calls as they arrived, `content` its reasoning."""
        found: list[JsonObject] = []
        for block in self._blocks.values():
            if block.characters:
                found.append({"type": "text", "characters": block.characters})
            found.append(block.joined())
        found += [{"type": PartKind.DETAILS.value, "detail": detail.joined()} for detail in self._details.values()]
        if PartKind.CONTENT in self.kinds and content:
            found.append({"type": PartKind.CONTENT.value, "text": content})
        found += [
            {"type": kind.value, "index": index, "value": self._of_calls[kind, call_id]}
            for index, call_id in enumerate(call_ids)
            for kind in _OF_CALLS
            if (kind, call_id) in self._of_calls
        ]
        return tuple(found)

    def _take_block(self, block: Mapping[str, object], answered: int) -> None:
        kind, index = block.get("type"), block.get("index")
        if kind not in {"thinking", "redacted_thinking"}:
            return
        known = self._blocks.get(index)
        if known is None:
            known = self._blocks[index] = _Growing(answered - self._answered, whole={"type": str(kind)})
            self._answered = answered
        self._grow(known, {name: block.get(name) for name in ("thinking", "signature", "data")})

    def _take_detail(self, detail: Mapping[str, object]) -> None:
        index, kind = detail.get("index"), detail.get("type")
        key = (index if isinstance(index, int) else None, kind if isinstance(kind, str) else None)
        known = self._details.setdefault(key, _Growing())
        for name, value in detail.items():
            if name in {"text", "summary"}:
                self._grow(known, {name: value})
            elif value is not None:
                known.whole[name] = self._counted(_cleaned(value))

    def _grow(self, known: _Growing, members: Mapping[str, object]) -> None:
        for name, piece in members.items():
            if isinstance(piece, str):
                known.pieces.setdefault(name, []).append(piece)
                self._counted(piece if name in {"signature", "data"} else "")

    def _counted(self, value: JsonValue) -> JsonValue:
        """Return the value after its characters were added up; readable text is limited elsewhere."""
        self._characters += len(str(value))
        if self._characters > self.max_characters:
            limit = f"{self.max_characters:,} characters"
            raise AnswerTooLong(f"The answer was stopped: what belongs to its reasoning exceeded {limit}.")
        return value


def _cleaned(value: object, levels: int = DEEPEST) -> JsonValue:
    """Return the value with clean texts, and without what lies deeper than so many levels."""
    match value:
        case str():
            return clean_text(value)
        case list() if levels:
            return [_cleaned(item, levels - 1) for item in value]
        case dict() if levels:
            return {str(name): _cleaned(item, levels - 1) for name, item in value.items()}
        case bool() | int() | float() if math.isfinite(value):
            return value
        case _:
            return None


def content_blocks(parts: Sequence[JsonObject], text: str) -> list[str | dict[str, object]]:
    """Return a step's content as blocks with the parts of Anthropic or Gemini in it; empty if it has none of them."""
    blocks: list[str | dict[str, object]] = []
    position, is_needed = 0, False
    for part in parts:
        match part:
            case {"type": "text", "characters": int(characters)}:
                _append_text(blocks, text[position : position + characters])
                position += characters
            case {"type": "thinking" | "redacted_thinking"}:
                is_needed = True
                blocks.append(dict(part))
            case _:
                pass
    _append_text(blocks, text[position:])
    signatures: list[str | dict[str, object]] = [
        {"type": PartKind.SIGNATURE.value, "index": part["index"], "signature": part["value"]}
        for part in parts
        if part["type"] == PartKind.SIGNATURE
    ]
    return [*blocks, *signatures] if is_needed or signatures else []


def wire_members(parts: Sequence[JsonObject]) -> dict[str, JsonValue]:
    """Return the members that a step's message on the OpenAI wire format gets."""
    members: dict[str, JsonValue] = {}
    details = [part["detail"] for part in parts if part["type"] == PartKind.DETAILS]
    if details:
        members[PartKind.DETAILS.value] = details
    for part in parts:
        if part["type"] == PartKind.CONTENT:
            members[PartKind.CONTENT.value] = part["text"]
    return members


def call_extras(parts: Sequence[JsonObject]) -> Mapping[int, JsonValue]:
    """Return `extra_content` of tool calls on the OpenAI wire format, by the number of the call."""
    extras = [part for part in parts if part["type"] == PartKind.EXTRA]
    return {int(str(part["index"])): part["value"] for part in extras}


def _append_text(blocks: list[str | dict[str, object]], text: str) -> None:
    if text.strip():
        blocks.append({"type": "text", "text": text})


FORMAT_MEMBER = "response_format"
"""A further member of the body: LangChain's own argument makes the SDK parse the answer, and fail if it does not fit.
"""


def wire_format(wanted: ResponseFormat) -> dict[str, JsonValue]:
    """Return the member of the body for chat completions."""
    described: dict[str, JsonValue] = {"name": wanted.name, "schema": dict(wanted.schema)}
    if wanted.description:
        described["description"] = wanted.description
    if wanted.strict is not None:
        described["strict"] = wanted.strict
    return {FORMAT_MEMBER: {"type": "json_schema", "json_schema": described}}


def moved_to_text(payload: Mapping[str, Any]) -> dict[str, Any]:  # Any: parsed JSON
    """Return a request of OpenAI's newer wire format, in which the member is called `text.format`."""
    body = dict(payload.get("extra_body") or {})
    wanted = body.pop(FORMAT_MEMBER, None)
    if wanted is None or "json_schema" not in wanted:
        return dict(payload)
    text = {**(payload.get("text") or {}), "format": {"type": "json_schema", **wanted["json_schema"]}}
    return {**payload, "extra_body": body, "text": text}


MOST_MARKERS = 4
"""Most markers of one request; Anthropic refuses more."""

_MARKER = {"type": "ephemeral"}


def with_cache_markers(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages with markers for Anthropic's cache: after the system prompt, and where prompts end.

    The ends of earlier prompts are marked, too: the cache looks back only about 20 blocks from a marker, and one step
    of a tool loop may add more.
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
