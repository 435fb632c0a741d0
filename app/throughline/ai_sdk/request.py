"""The body of `POST /ai-sdk/{agent}`, as the AI SDK's `DefaultChatTransport` sends it, and its messages as ours.

Fields and parts that are not read here are ignored: applications add their own.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, AliasChoices, BaseModel, Field, JsonValue, ValidationError

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
    clean_text,
    is_blank,
    text_of,
)
from throughline.domain.prompt import ToolSpec
from throughline.domain.session import MAX_EXTERNAL_ID
from throughline.domain.tool import OUTSIDE, WaitKind
from throughline.http.fields import MAX_BLOCKS, check_external_id
from throughline.http.openai_messages import FOREIGN, MAX_MESSAGES, ImportedImageUrl, content_of_blocks
from throughline.wire.overrides import MOST_TOOLS, ClientToolIn, check_client_tools

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


def _check_tools(tools: dict[str, ToolIn]) -> dict[str, ToolIn]:
    check_client_tools([_client_tool(name, tool) for name, tool in tools.items()])
    return tools


def _client_tool(name: str, tool: ToolIn) -> ClientToolIn:
    given = {} if tool.parameters is None else {"parameters": tool.parameters}
    return ClientToolIn(name=name, description=tool.description or "", **given)


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
        return tuple(_client_tool(name, tool).read() for name, tool in (self.tools or {}).items())


@dataclass(frozen=True, slots=True)
class ReadMessages:
    """The messages of a chat as ours.

    `instructions` are the texts of the system messages. `texts` are what the user has said, as a session has it: also
    answers to questions, which the client has as outputs of calls.
    """

    instructions: str
    messages: tuple[NewMessage, ...]
    texts: tuple[str, ...]


def read_messages(messages: Sequence[UIMessage], source: Source) -> ReadMessages:
    """Return the messages of a chat. Raises InvalidInput for a part that cannot be read.

    An answer of several steps becomes several messages, each followed by the results of its calls.
    """
    instructions, read, texts = list[str](), list[NewMessage](), list[str]()
    for number, message in enumerate(messages):
        where = f"messages.{number}"
        match message.role:
            case "system":
                instructions += [part.text or "" for part in message.parts if part.type == "text"]
            case "user":
                read.append(_user_message(message, source, where))
                texts.append(text_of(clean_content(read[-1].content)))
            case "assistant":
                read += _answer(message, source, where)
                texts += (text for text, _ in groupby(_answered_questions(message)))  # equal ones count once there
    return ReadMessages("\n\n".join(text for text in instructions if not is_blank(text)), tuple(read), tuple(texts))


def _answered_questions(answer: UIMessage) -> Iterator[str]:
    """Yield what the user has answered to questions of the model and of tools' servers."""
    for part in answer.parts:
        if part.is_tool and part.name == ASK_USER and part.has_result:
            yield clean_text(part.result)


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
    try:
        return ImageBlock(ImportedImageUrl(url=part.url or "").url)
    except ValidationError:
        raise InvalidInput(
            f"{where} needs an address that begins with https://, or a data: URL of an image in base64.",
            field=f"{where}.url",
        ) from None


@dataclass(slots=True)
class _Step:
    """A step of an answer that is being read."""

    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[NewMessage] = field(default_factory=list)

    def messages(self, source: Source) -> Iterator[NewMessage]:
        if self.texts or self.calls:
            text = "\n".join(self.texts)
            yield NewMessage(role=Role.ASSISTANT, content=text, source=source, tool_calls=tuple(self.calls))
        yield from self.results


def _answer(message: UIMessage, source: Source, where: str) -> Iterator[NewMessage]:
    """Yield the messages of an answer. A text after calls begins a new step, also without a part `step-start`."""
    step = _Step()
    for number, part in enumerate(message.parts):
        is_text = part.type == "text" and not is_blank(part.text or "")
        if part.type == "step-start" or (is_text and step.calls):
            yield from step.messages(source)
            step = _Step()
        if is_text:
            step.texts.append(part.text or "")
        elif part.is_tool:
            _add_call(step, part, source, f"{where}.parts.{number}")
    yield from step.messages(source)


def _add_call(step: _Step, part: MessagePart, source: Source, where: str) -> None:
    if not part.call_id or not part.name:
        raise InvalidInput(f"{where} is a call of a tool and needs `toolCallId` and the tool's name.", field=where)
    arguments = json.dumps({} if part.input is None else part.input, ensure_ascii=False)
    step.calls.append(ToolCall(part.call_id, part.name, arguments))
    step.results.append(
        NewMessage(Role.TOOL, part.result, source, tool_call_id=part.call_id, name=part.name, metadata=_origin(part))
    )


def _origin(part: MessagePart) -> JsonObject:
    """Return the metadata of a call's result: a person's answer counts as a text of the user in a branch, too."""
    is_error: JsonObject = {} if part.state == "output-available" else {"is_error": True}
    if part.type == DYNAMIC_TOOL or not part.has_result:
        return is_error
    return {**is_error, OUTSIDE: str(WaitKind.ANSWER if part.name == ASK_USER else WaitKind.TOOL_RESULT)}
