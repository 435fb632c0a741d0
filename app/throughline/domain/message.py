"""Messages: the stored items of a session, numbered by position, and the blocks and calls they carry."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from throughline.domain.ids import MessageId, RunId, SessionId
from throughline.domain.json_types import JsonObject


class Role(StrEnum):
    """Who a message comes from."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Source(StrEnum):
    """The door a message came in through."""

    WEB = "web"
    SLACK = "slack"
    WORKER = "worker"
    CLI = "cli"
    API = "api"


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A piece of text in a message of several blocks."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image in a message: an https address or a `data:` URL with a base64 body."""

    url: str
    detail: str = "auto"


Block: TypeAlias = TextBlock | ImageBlock
Content: TypeAlias = str | tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asked for.

    `arguments` is the JSON text exactly as the model wrote it. It is sent again byte for byte where the provider takes
    text (OpenAI), as the object it stands for elsewhere (Anthropic); it may be unparsable, which the tool node answers
    with an error result and `domain/arguments.py` makes an object of.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message before it is stored: no id, no position, no time."""

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


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Message:
    """A stored message. Rows are ordered by `position` (1, 2, 3 … in the session) and by nothing else.

    `token_count` is what `counter` (for example `tiktoken:cl100k_base`) counted at write, per-message overhead
    included; `name` is the tool's name on a tool message.
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


def text_of(content: Content) -> str:
    """Return the text of `content`; images are left out."""
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def searched_text(message: Message) -> str:
    """Return the text of a message with the calls in it: what can be searched for, and read again."""
    return "\n".join(
        part
        for part in (text_of(message.content), *(f"{call.name} {call.arguments}" for call in message.tool_calls))
        if part
    )
