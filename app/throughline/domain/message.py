"""Messages: the stored items of a session, numbered by position, with their content blocks and tool calls."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from throughline.domain.basic_types import JsonObject, MessageId, RunId, SessionId
from throughline.domain.reasoning import Reasoning

LAST_POSITION = 2**31 - 1
"""Highest position of a message that the database's integer columns hold."""

REDACTED_TEXT = "[This message was redacted.]"
"""The text that replaces what a redaction removes."""

CLIENT_MESSAGE_ID, CLIENT_PROTOCOL = "client_message_id", "client_protocol"
"""Keys in the metadata of a user's message: the id that its client gave it, and the protocol of a client that keeps the
chat itself."""


class Role(StrEnum):
    """The author of a message: user, model or tool."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Source(StrEnum):
    """The interface through which a message arrived."""

    WEB = "web"
    SLACK = "slack"
    WORKER = "worker"
    CLI = "cli"
    API = "api"


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A text block of a message with several blocks."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image block of a message: an https address or a `data:` URL with a base64 body."""

    url: str
    detail: str = "auto"


Block: TypeAlias = TextBlock | ImageBlock
Content: TypeAlias = str | tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model requested.

    `arguments` is the JSON text exactly as the model wrote it. Providers that take text (OpenAI) get it again byte for
    byte, others (Anthropic) get the object it encodes. If it cannot be parsed, the tool node answers with an error, and
    `domain/tool.py` wraps the text in an object.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message that is not stored yet, so it has no position or time. Its other fields are as in `Message`.

    `id` is the id under which it will be stored, None if readers were not told one before; storage then makes one.
    `reasoning` is stored apart from it.
    """

    role: Role
    content: Content
    source: Source
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    author: str | None = None
    token_count: int = 0
    counter: str = ""
    metadata: JsonObject = field(default_factory=dict)
    reasoning: Reasoning | None = None
    id: MessageId | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Message:
    """A stored message. Messages are ordered only by `position` (1, 2, 3 … within the session).

    `token_count` is the message's tokens when it was stored, including per-message overhead, as counted by `counter`
    (for example `tiktoken:cl100k_base`). `name` is the tool's name in a tool message. `reasoning` is set only if it was
    asked for.
    """

    id: MessageId
    session_id: SessionId
    position: int
    role: Role
    content: Content
    source: Source
    created_at: datetime
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    run_id: RunId | None = None
    author: str | None = None
    token_count: int = 0
    counter: str = ""
    metadata: JsonObject = field(default_factory=dict)
    pinned: bool = False
    reasoning: Reasoning | None = None


@dataclass(frozen=True, slots=True)
class MessageCopy:
    """The session of a copy of a message, and the copy's position there."""

    session_id: SessionId
    position: int


def blocks_of(content: Content) -> tuple[Block, ...]:
    """Return the blocks of a content; a plain text is one TextBlock."""
    return (TextBlock(content),) if isinstance(content, str) else content


def text_of(content: Content) -> str:
    """Return the text of `content` without its images."""
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def searched_text(message: Message) -> str:
    """Return the message's text and the names and arguments of its tool calls: the text that search indexes."""
    return "\n".join(
        part
        for part in (text_of(message.content), *(f"{call.name} {call.arguments}" for call in message.tool_calls))
        if part
    )


REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str) -> str:
    """Return `text` with NUL and lone surrogates replaced by U+FFFD, otherwise unchanged.

    PostgreSQL text cannot hold NUL, and neither UTF-8 nor JSON can hold a lone surrogate. A surrogate pair that a
    stream split is joined to the character it encodes. Text is not normalised.
    """
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_content(content: Content) -> Content:
    """Return `content` with each of its texts cleaned."""
    return change_texts(content, clean_text)


def change_texts(content: Content, change: Callable[[str], str]) -> Content:
    """Return `content` with `change` applied to each of its texts."""
    if isinstance(content, str):
        return change(content)
    return tuple(
        replace(block, text=change(block.text)) if isinstance(block, TextBlock) else block for block in content
    )


def is_blank(text: str) -> bool:
    """Whether `text` has no visible characters: only whitespace and zero-width characters."""
    return not text.strip().strip("\u200b\u200c\u200d\u2060\ufeff").strip()
