"""Messages in OpenAI's chat format, as messages of this service.

Imported conversations and requests for chat completions have them. Input items of responses share some of their parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from throughline.domain.errors import InvalidInput
from throughline.domain.message import (
    Block,
    Content,
    ImageBlock,
    NewMessage,
    Role,
    Source,
    TextBlock,
    ToolCall,
    is_blank,
    text_of,
)
from throughline.http.fields import IMAGE_URL, MAX_BLOCKS, optional_content_kind

MAX_MESSAGES = 10_000
MAX_CALLS = 1_000
INSTRUCTING = frozenset({"system", "developer"})
FOREIGN = ConfigDict(extra="ignore", strict=True, frozen=True)
"""Configuration of the models for OpenAI's objects. Fields that other programs add are ignored."""


class ImportedFunction(BaseModel):
    """The called function; `arguments` is the text that the model wrote."""

    model_config = FOREIGN

    name: str = Field(min_length=1, max_length=200)
    arguments: str = ""


class ImportedCall(BaseModel):
    """A tool call in OpenAI's format."""

    model_config = FOREIGN

    id: str = Field(min_length=1, max_length=200)
    function: ImportedFunction


class ImportedText(BaseModel):
    """A text part of a message."""

    model_config = FOREIGN

    type: Literal["text"]
    text: str


class ImportedImageUrl(BaseModel):
    """Location of an image: an https URL or a `data:` URL, with OpenAI's level of detail."""

    model_config = FOREIGN

    url: str = Field(pattern=IMAGE_URL)
    detail: Literal["auto", "low", "high"] = "auto"


class ImportedImage(BaseModel):
    """An image part of a message: an https address or a `data:` URL with a base64 body."""

    model_config = FOREIGN

    type: Literal["image_url"]
    image_url: ImportedImageUrl


class ImportedRefusal(BaseModel):
    """A part of an assistant's message that explains why it does not answer; stored as text."""

    model_config = FOREIGN

    type: Literal["refusal"]
    refusal: str


ImportedPart: TypeAlias = Annotated[ImportedText | ImportedImage | ImportedRefusal, Field(discriminator="type")]
ImportedParts: TypeAlias = Annotated[list[ImportedPart], Field(max_length=MAX_BLOCKS)]


class ImportedMessage(BaseModel):
    """A message in OpenAI's format."""

    model_config = FOREIGN

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        Annotated[str, Tag("(text)")] | Annotated[ImportedParts, Tag("(blocks)")] | Annotated[None, Tag("(none)")],
        Discriminator(optional_content_kind),
    ] = None
    refusal: str | None = Field(None, description="stands in place of an assistant's content; kept as text")
    name: str | None = Field(None, max_length=200)
    tool_calls: list[ImportedCall] | None = Field(None, max_length=MAX_CALLS)
    tool_call_id: str | None = Field(None, max_length=200)


def read_messages(items: Sequence[ImportedMessage], source: Source) -> tuple[str, tuple[NewMessage, ...]]:
    """Return the texts of the system and developer messages as one, and the other messages.

    Raises InvalidInput if a tool message has no `tool_call_id`.
    """
    called: dict[str, str] = {}
    instructions: list[str] = []
    messages: list[NewMessage] = []
    for place, item in enumerate(items):
        if item.role in INSTRUCTING:
            instructions.append(text_of(_content(item.content)))
            continue
        message = _message(place, item, called, source)
        called |= {call.id: call.name for call in message.tool_calls}
        messages.append(message)
    return "\n\n".join(text for text in instructions if not is_blank(text)), tuple(messages)


def _message(place: int, item: ImportedMessage, called: Mapping[str, str], source: Source) -> NewMessage:
    match Role(item.role):
        case Role.TOOL:
            return _result(place, item, called, source)
        case Role.ASSISTANT:
            calls = tuple(
                ToolCall(made.id, made.function.name, made.function.arguments) for made in item.tool_calls or ()
            )
            said = _content(item.content) or item.refusal or ""
            return NewMessage(role=Role.ASSISTANT, content=said, source=source, tool_calls=calls)
        case Role.USER:
            return NewMessage(role=Role.USER, content=_content(item.content), source=source, author=item.name)


def _result(place: int, item: ImportedMessage, called: Mapping[str, str], source: Source) -> NewMessage:
    """Return a tool result. Without a name of its own it gets that of the tool whose call it answers."""
    if not item.tool_call_id:
        raise InvalidInput(
            "A tool message needs the `tool_call_id` of the call that it answers.",
            field=f"messages.{place}.tool_call_id",
        )
    return NewMessage(
        role=Role.TOOL,
        content=_content(item.content),
        source=source,
        tool_call_id=item.tool_call_id,
        name=item.name or called.get(item.tool_call_id),
    )


def _content(given: str | list[ImportedPart] | None) -> Content:
    """Return the content of a message. Parts without an image among them become one text."""
    if given is None or isinstance(given, str):
        return given or ""
    return content_of_blocks(_block(part) for part in given)


def content_of_blocks(given: Iterable[Block]) -> Content:
    """Return the blocks as the content of a message: one text if there is no image among them."""
    blocks = tuple(given)
    return blocks if any(isinstance(block, ImageBlock) for block in blocks) else text_of(blocks)


def _block(part: ImportedPart) -> Block:
    match part:
        case ImportedText():
            return TextBlock(part.text)
        case ImportedRefusal():
            return TextBlock(part.refusal)
        case ImportedImage():
            return ImageBlock(part.image_url.url, part.image_url.detail)
