"""Input items of OpenAI's Responses interface, as messages of this service.

See https://platform.openai.com/docs/api-reference/responses/create . Items that this service has returned as output may
be sent back as input.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag, TypeAdapter, ValidationError

from throughline.db.statements.sql import new_id
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
    text_of,
)
from throughline.http.body import parse_json, validate
from throughline.http.fields import IMAGE_URL, MAX_BLOCKS, content_kind
from throughline.http.openai_messages import FOREIGN, INSTRUCTING, MAX_CALLS, ImportedRefusal, content_of_blocks
from throughline.http.route_errors import InvalidRequest, MalformedBody

# The compaction item: a conversation's summary and its newest messages, as one text that only this service reads.
# OpenAI's clients send it back as it is. It is not encrypted: it holds what the client itself has sent.

VERSION = 1
MAX_CONTENT = 20_000_000


class CompactionItem(BaseModel):
    """A conversation's summary and newest messages, as this service has returned them."""

    model_config = FOREIGN

    type: Literal["compaction"]
    encrypted_content: Annotated[str, Field(max_length=MAX_CONTENT)]


class CompactedContent(BaseModel):
    """What a compaction item stands for: the summary, '' without one, and the items that it does not cover."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    version: Literal[1]
    summary: str
    items: list[dict[str, JsonValue]]


def make_compaction_item(summary: str, items: Sequence[dict[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return the item for a summary and the items of the messages that it does not cover."""
    content = json.dumps({"version": VERSION, "summary": summary, "items": list(items)}, ensure_ascii=False)
    encoded = base64.urlsafe_b64encode(content.encode()).decode()
    return {"type": "compaction", "id": f"cmp_{new_id().hex}", "encrypted_content": encoded}


def read_compaction_item(item: CompactionItem) -> CompactedContent | None:
    """Return what the item stands for, its texts cleaned as those of a body; None if this service did not make it."""
    try:
        content = base64.b64decode(item.encrypted_content, altchars=b"-_", validate=True)
        return validate(parse_json(content), CompactedContent)
    except (ValueError, MalformedBody, InvalidRequest):
        return None


MAX_ITEMS = 10_000


class InputText(BaseModel):
    """A piece of text, of a user or of an earlier answer."""

    model_config = FOREIGN

    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str


class InputImage(BaseModel):
    """An image: an https address or a `data:` URL."""

    model_config = FOREIGN

    type: Literal["input_image"]
    image_url: str = Field(pattern=IMAGE_URL)
    detail: Literal["auto", "low", "high"] = "auto"


Part: TypeAlias = Annotated[InputText | ImportedRefusal | InputImage, Field(discriminator="type")]
Parts: TypeAlias = Annotated[list[Part], Field(max_length=MAX_BLOCKS)]


class MessageItem(BaseModel):
    """A message of anybody; `type` may be missing."""

    model_config = FOREIGN

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Annotated[Annotated[str, Tag("(text)")] | Annotated[Parts, Tag("(blocks)")], Discriminator(content_kind)]


class CallItem(BaseModel):
    """A tool call of the model: of a client's tool, of a tool of this service, or one that needs approval."""

    model_config = FOREIGN

    type: Literal["function_call", "mcp_call", "mcp_approval_request"]
    id: str = Field("", max_length=200)
    call_id: str = Field("", max_length=200)
    name: str = Field(min_length=1, max_length=200)
    arguments: str = ""
    output: str | None = None

    @property
    def tool_call_id(self) -> str:
        """The id of the call: that of a function call, or of the item itself."""
        return self.call_id or self.id


class CallResultItem(BaseModel):
    """The result of a client's tool."""

    model_config = FOREIGN

    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1, max_length=200)
    output: Annotated[
        Annotated[str, Tag("(text)")] | Annotated[list[InputText], Tag("(blocks)")], Discriminator(content_kind)
    ]

    @property
    def text(self) -> str:
        """The result as one text."""
        return self.output if isinstance(self.output, str) else "\n".join(part.text for part in self.output)


class ApprovalItem(BaseModel):
    """A person's decision on a call that needs approval."""

    model_config = FOREIGN

    type: Literal["mcp_approval_response"]
    approval_request_id: str = Field(min_length=1, max_length=200)
    approve: bool
    reason: str | None = Field(None, max_length=4_000)


class ReasoningItem(BaseModel):
    """Reasoning that was returned before; models do not get it again."""

    model_config = FOREIGN

    type: Literal["reasoning"]


class ItemReference(BaseModel):
    """The id of an item that was returned before, in place of the item itself."""

    model_config = FOREIGN

    type: Literal["item_reference"]
    id: str = Field(min_length=1, max_length=200)


def _item_kind(value: object) -> str:
    """Return the union tag of an item, for validation and its errors; a missing type is that of a message."""
    kind = value.get("type", "message") if isinstance(value, dict) else "message"
    return f"({KINDS.get(str(kind), 'unknown')})"


KINDS = {
    "message": "message",
    "function_call": "call",
    "mcp_call": "call",
    "mcp_approval_request": "call",
    "function_call_output": "output",
    "mcp_approval_response": "approval",
    "reasoning": "reasoning",
    "compaction": "compaction",
    "item_reference": "reference",
}


class UnknownItem(BaseModel):
    """An item of a type that this service does not have; its validation always fails, and says so."""

    model_config = FOREIGN

    type: Literal[
        "message",
        "function_call",
        "function_call_output",
        "mcp_call",
        "mcp_approval_request",
        "mcp_approval_response",
        "reasoning",
        "compaction",
        "item_reference",
    ]


Item: TypeAlias = Annotated[
    Annotated[MessageItem, Tag("(message)")]
    | Annotated[CallItem, Tag("(call)")]
    | Annotated[CallResultItem, Tag("(output)")]
    | Annotated[ApprovalItem, Tag("(approval)")]
    | Annotated[ReasoningItem, Tag("(reasoning)")]
    | Annotated[CompactionItem, Tag("(compaction)")]
    | Annotated[ItemReference, Tag("(reference)")]
    | Annotated[UnknownItem, Tag("(unknown)")],
    Discriminator(_item_kind),
]
Items: TypeAlias = Annotated[list[Item], Field(max_length=MAX_ITEMS)]


Input: TypeAlias = Annotated[
    Annotated[str, Tag("(text)")] | Annotated[Items, Tag("(blocks)")], Discriminator(content_kind)
]


_ITEMS: TypeAdapter[list[Item]] = TypeAdapter(Items)
SUMMARY_HEAD = "Summary of the conversation until now:"
"""First line of the message that stands for what a compaction item has summarised."""

UNREADABLE = "A `compaction` item that this service has not made cannot be read. Send one that it returned, unchanged."


def item_from(value: object) -> Item:
    """Return an item that this service has written as JSON."""
    return _ITEMS.validate_python([value])[0]


def read_items(items: str | Sequence[Item], source: Source) -> tuple[str, tuple[NewMessage, ...]]:
    """Return the instructions in the items, and their messages.

    References have been replaced by their items. Calls without a result between them become one message. Reasoning,
    approvals, and an answer's empty message behind another of its messages are left out. A text stands for one message
    of the user. Raises InvalidInput for a compaction item that this service has not made, and for a message with more
    than MAX_CALLS calls.
    """
    if isinstance(items, str):
        return "", (NewMessage(role=Role.USER, content=items, source=source),)
    reader = _Reader(source)
    for item in items:
        reader.add(item)
    return "\n\n".join(reader.instructions), reader.read_messages()


class _Reader:
    """Reader of items one after the other."""

    def __init__(self, source: Source) -> None:
        self.instructions: list[str] = []
        self._source = source
        self._messages: list[NewMessage] = []
        self._calls: defaultdict[int, list[ToolCall]] = defaultdict(list)
        self._names: dict[str, str] = {}

    def read_messages(self) -> tuple[NewMessage, ...]:
        """Return the messages of the items until now, with their calls."""
        return tuple(
            replace(message, tool_calls=tuple(self._calls[place])) if place in self._calls else message
            for place, message in enumerate(self._messages)
        )

    def add(self, item: Item) -> None:
        match item:
            case MessageItem(role=role) if role in INSTRUCTING:
                self.instructions.append(text_of(content_of(item.content)))
            case MessageItem(role=role):
                self._add_message(Role(role), content_of(item.content))
            case CallItem():
                self._add_call(item)
            case CallResultItem():
                self._add_result(item.call_id, item.text)
            case CompactionItem():
                self._add_compacted(item)
            case _:
                pass

    def _add_message(self, role: Role, said: Content) -> None:
        # Clients that assemble a stream make an empty message of the end of a text that calls have followed.
        is_end_of_text = not text_of(said) and self._follows_answer()
        if role is not Role.ASSISTANT or not is_end_of_text:
            self._messages.append(NewMessage(role=role, content=said, source=self._source))

    def _follows_answer(self) -> bool:
        return bool(self._messages) and self._messages[-1].role is Role.ASSISTANT

    def _add_compacted(self, item: CompactionItem) -> None:
        content = read_compaction_item(item)
        if content is None:
            raise InvalidInput(UNREADABLE, field="input")
        if content.summary:
            said = f"{SUMMARY_HEAD}\n\n{content.summary}"
            self._messages.append(NewMessage(role=Role.USER, content=said, source=self._source))
        try:
            kept = _ITEMS.validate_python(content.items)
        except ValidationError:
            raise InvalidInput(UNREADABLE, field="input") from None
        for inner in kept:
            self.add(inner)

    def _add_call(self, item: CallItem) -> None:
        call = ToolCall(item.tool_call_id, item.name, item.arguments)
        self._names[call.id] = call.name
        if not self._follows_answer():
            self._messages.append(NewMessage(role=Role.ASSISTANT, content="", source=self._source))
        calls = self._calls[len(self._messages) - 1]
        if len(calls) == MAX_CALLS:
            raise InvalidInput(
                f"The call {call.id[:80]!r} is one too many: at most {MAX_CALLS:,} calls may follow each other "
                "without a result or a message between them.",
                field="input",
            )
        calls.append(call)
        if item.output is not None:
            self._add_result(call.id, item.output)

    def _add_result(self, call_id: str, text: str) -> None:
        name = self._names.get(call_id)
        self._messages.append(
            NewMessage(role=Role.TOOL, content=text, source=self._source, tool_call_id=call_id, name=name)
        )


def content_of(given: str | Sequence[Part]) -> Content:
    """Return the content of a message. Parts without an image among them become one text."""
    return given if isinstance(given, str) else content_of_blocks(_block(part) for part in given)


def _block(part: Part) -> Block:
    match part:
        case InputText():
            return TextBlock(part.text)
        case ImportedRefusal():
            return TextBlock(part.refusal)
        case InputImage():
            return ImageBlock(part.image_url, part.detail)
