"""The body of `POST /ai-sdk/{agent}`, as the AI SDK's `DefaultChatTransport` sends it, and its messages as ours.

Fields and parts that are not read here are ignored: applications add their own.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, AliasChoices, BaseModel, Field, JsonValue

from throughline.domain.basic_types import JsonObject
from throughline.domain.elicitation import ASK_USER, DECLINE, call_of_question
from throughline.domain.errors import InvalidInput
from throughline.domain.message import (
    CLIENT_MESSAGE_ID,
    CLIENT_PROTOCOL,
    Block,
    ImageBlock,
    NewMessage,
    Role,
    Source,
    TextBlock,
    ToolCall,
    clean_content,
    is_blank,
    text_of,
)
from throughline.domain.prompt import ToolSpec
from throughline.domain.session import MAX_EXTERNAL_ID
from throughline.domain.tool import OUTSIDE, WaitKind
from throughline.http.fields import IMAGE, MAX_BLOCKS, check_external_id
from throughline.http.openai_messages import FOREIGN, MAX_MESSAGES, content_of_blocks
from throughline.wire.overrides import MOST_TOOLS, ClientToolIn, check_client_tools, read_client_tools

PROTOCOL = "ai-sdk"
MAX_PARTS = 10_000
MAX_ID = 200

NO_OUTPUT = "The call was not run."
TOOL, DYNAMIC_TOOL = "tool-", "dynamic-tool"
"""Beginning of the type of a part for a tool that the client knows by name, and the type for all other tools."""


class Approval(BaseModel):
    """A person's decision on a call."""

    model_config = FOREIGN

    approved: bool | None = None
    reason: str | None = Field(None, max_length=4_000)


class MessagePart(BaseModel):
    """A part of a UIMessage. Which fields are set depends on `type` and `state`."""

    model_config = FOREIGN

    type: str = Field(max_length=MAX_ID)
    text: str | None = None
    url: str | None = None
    media_type: str | None = Field(None, alias="mediaType", max_length=MAX_ID)
    call_id: str | None = Field(None, alias="toolCallId", min_length=1, max_length=MAX_ID)
    tool_name: str | None = Field(None, alias="toolName", max_length=MAX_ID)
    state: str | None = Field(None, max_length=MAX_ID)
    input: JsonValue = None
    output: JsonValue = None
    error_text: str | None = Field(None, alias="errorText")
    approval: Approval | None = None

    @property
    def is_tool(self) -> bool:
        """Whether the part is a call of a tool."""
        return self.type.startswith(TOOL) or self.type == DYNAMIC_TOOL

    @property
    def name(self) -> str:
        """The name of the called tool."""
        return (self.tool_name or "") if self.type == DYNAMIC_TOOL else self.type.removeprefix(TOOL)

    @property
    def has_result(self) -> bool:
        """Whether the call has a result, or will have none."""
        return (self.state or "").startswith("output-")

    @property
    def result(self) -> str:
        """The text of the call's result. A question of a tool's server that is not answered is declined."""
        match self.state:
            case "output-error" if self.name == ASK_USER and call_of_question(self.call_id or ""):
                return DECLINE
            case "output-available":
                return self.output if isinstance(self.output, str) else json.dumps(self.output, ensure_ascii=False)
            case "output-error":
                return self.error_text or "The call failed."
            case _:
                return NO_OUTPUT


class UIMessage(BaseModel):
    """A message as `useChat` keeps it."""

    model_config = FOREIGN

    id: str = Field("", max_length=MAX_ID)
    role: Literal["system", "user", "assistant"]
    parts: list[MessagePart] = Field(max_length=MAX_PARTS)


class ToolIn(BaseModel):
    """A tool that the client runs. Its name is the key in `tools`."""

    model_config = FOREIGN

    description: str | None = Field(None, max_length=4_000)
    parameters: dict[str, JsonValue] | None = Field(
        None, validation_alias=AliasChoices("inputSchema", "parameters"), description="a JSON schema, or `inputSchema`"
    )

    def read(self, name: str) -> ClientToolIn:
        """Return the tool in the form of REST, which checks it."""
        given = {} if self.parameters is None else {"parameters": self.parameters}
        return ClientToolIn(name=name, description=self.description or "", **given)


def _check_tools(tools: dict[str, ToolIn]) -> dict[str, ToolIn]:
    check_client_tools([tool.read(name) for name, tool in tools.items()])
    return tools


ToolName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Tools: TypeAlias = Annotated[dict[ToolName, ToolIn], AfterValidator(_check_tools), Field(max_length=MOST_TOOLS)]


def _check_chat_id(text: str) -> str:
    if "/" in text:
        raise ValueError("has a slash, which the addresses of a chat cannot have")
    return check_external_id(text)


class SendChat(BaseModel):
    """A chat of the AI SDK with what is new at its end: a user's message, or what calls of the last answer were given.

    The whole chat is sent, or only its newest message, as `message` or alone in `messages`.
    """

    model_config = FOREIGN

    id: Annotated[str, Field(min_length=1, max_length=MAX_EXTERNAL_ID), AfterValidator(_check_chat_id)]
    messages: list[UIMessage] | None = Field(None, min_length=1, max_length=MAX_MESSAGES)
    message: UIMessage | None = None
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = Field(None, alias="messageId", max_length=MAX_ID)
    tools: Tools | None = Field(None, description="tools that the client runs, by name")

    def chat(self) -> list[UIMessage]:
        """Return the messages. Raises InvalidInput without any, and for both fields."""
        if (self.messages is None) is (self.message is None):
            raise InvalidInput("Send `messages`, or `message` with the newest one alone.", field="messages")
        return self.messages or ([] if self.message is None else [self.message])

    def read_tools(self) -> tuple[ToolSpec, ...]:
        """Return the client's tools as domain values."""
        return read_client_tools([tool.read(name) for name, tool in (self.tools or {}).items()])


def read_messages(messages: Sequence[UIMessage], source: Source) -> tuple[str, tuple[NewMessage, ...]]:
    """Return the texts of the system messages as one, and the other messages of a chat as ours.

    An answer of several steps becomes several messages, each followed by the results of its calls. Raises InvalidInput
    for a part that cannot be read.
    """
    instructions, read = list[str](), list[NewMessage]()
    for number, message in enumerate(messages):
        match message.role:
            case "system":
                instructions += [part.text or "" for part in message.parts if part.type == "text"]
            case "user":
                read.append(_user_message(message, source, f"messages.{number}"))
            case "assistant":
                read += _answer(message, source, f"messages.{number}")
    return "\n\n".join(text for text in instructions if not is_blank(text)), tuple(read)


def said_texts(messages: Sequence[NewMessage]) -> tuple[str, ...]:
    """Return what the user has said, as a session has it: messages, and answers to questions.

    Equal answers that follow each other count once.
    """
    texts, newest_answer = list[str](), None
    for message in messages:
        is_answer = message.metadata.get(OUTSIDE) == WaitKind.ANSWER
        text = text_of(clean_content(message.content))
        if message.role is Role.USER or (is_answer and text != newest_answer):
            texts.append(text)
            newest_answer = text if is_answer else None
    return tuple(texts)


def _user_message(message: UIMessage, source: Source, where: str) -> NewMessage:
    blocks = list[Block]()
    for number, part in enumerate(message.parts):
        if part.type == "text":
            blocks.append(TextBlock(part.text or ""))
        elif part.type == "file":
            blocks.append(_image(part, f"{where}.parts.{number}"))
    if len(blocks) > MAX_BLOCKS:
        raise InvalidInput(f"A message has at most {MAX_BLOCKS} texts and images, not {len(blocks)}.", field=where)
    named: JsonObject = {CLIENT_MESSAGE_ID: message.id} if message.id else {}
    metadata = {**named, CLIENT_PROTOCOL: PROTOCOL}
    return NewMessage(role=Role.USER, content=content_of_blocks(blocks), source=source, metadata=metadata)


def _image(part: MessagePart, where: str) -> ImageBlock:
    """Return the image of a part of the type `file`. Raises InvalidInput for any other file."""
    kind = part.media_type or ""
    if kind != "image" and not kind.startswith("image/"):
        raise InvalidInput(
            f"{where} is a file of the type {kind!r}. Only images can be sent: leave it out, or send its text.",
            field=f"{where}.mediaType",
        )
    if part.url is None or not IMAGE.match(part.url):
        raise InvalidInput(
            f"{where} needs an address that begins with https://, or a data: URL of an image in base64.",
            field=f"{where}.url",
        )
    return ImageBlock(part.url)


def _answer(message: UIMessage, source: Source, where: str) -> Iterator[NewMessage]:
    """Yield the messages of an answer. A text after calls begins a new step, also without a part `step-start`."""
    texts, calls = list[str](), list[MessagePart]()
    for number, part in enumerate(message.parts):
        is_text = part.type == "text" and not is_blank(part.text or "")
        if part.type == "step-start" or (is_text and calls):
            yield from _step(texts, calls, source)
            texts, calls = [], []
        if is_text:
            texts.append(part.text or "")
        elif part.is_tool:
            if not part.call_id or not part.name:
                place = f"{where}.parts.{number}"
                raise InvalidInput(
                    f"{place} is a call of a tool and needs `toolCallId` and the tool's name.", field=place
                )
            calls.append(part)
    yield from _step(texts, calls, source)


def _step(texts: Sequence[str], parts: Sequence[MessagePart], source: Source) -> Iterator[NewMessage]:
    """Yield the message of a step with these texts and calls, and the results of its calls."""
    if texts or parts:
        calls = tuple(ToolCall(part.call_id or "", part.name, _arguments(part)) for part in parts)
        yield NewMessage(Role.ASSISTANT, "\n".join(texts), source, tool_calls=calls)
    for part in parts:
        metadata = _origin(part)
        yield NewMessage(Role.TOOL, part.result, source, tool_call_id=part.call_id, name=part.name, metadata=metadata)


def _arguments(part: MessagePart) -> str:
    return json.dumps({} if part.input is None else part.input, ensure_ascii=False)


def _origin(part: MessagePart) -> JsonObject:
    """Return the metadata of a call's result: a person's answer counts as a text of the user in a branch, too."""
    is_error: JsonObject = {} if part.state == "output-available" else {"is_error": True}
    if not part.has_result or (part.type == DYNAMIC_TOOL and part.name != ASK_USER):
        return is_error
    return {**is_error, OUTSIDE: str(WaitKind.ANSWER if part.name == ASK_USER else WaitKind.TOOL_RESULT)}
