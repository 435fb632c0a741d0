"""The body of a request in AG-UI's form, and its messages, tools and answers as those of this service.

Form: https://docs.ag-ui.com/spec/1.0/basic/run-input . Unknown members are ignored, as the protocol demands.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag, field_validator
from pydantic.alias_generators import to_camel

from throughline.chat_protocols.ask_agent import check_length
from throughline.domain.errors import InvalidInput
from throughline.domain.message import (
    CLIENT_MESSAGE_ID,
    CLIENT_PROTOCOL,
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
from throughline.domain.tool import MAX_REASON, ApprovalDecision, Resolution, Wait, WaitKind, check_answers
from throughline.http.fields import IMAGE, MAX_BLOCKS, ExternalId, optional_content_kind
from throughline.http.openai_messages import (
    FOREIGN,
    INSTRUCTING,
    MAX_CALLS,
    MAX_MESSAGES,
    ImportedCall,
    content_of_blocks,
)
from throughline.wire.overrides import MOST_TOOLS, ClientToolIn, check_client_tools

PROTOCOL = "ag-ui"
MAX_ID = 200
NOT_SENT = frozenset({"activity", "reasoning"})
"""Roles of messages that clients keep for themselves, or show only."""

Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_ID)]


class AgUiModel(BaseModel):
    """An object of AG-UI."""

    model_config = ConfigDict(**FOREIGN, alias_generator=to_camel)


class AgUiSource(AgUiModel):
    """Where a part's content is: in `value` itself, in base64, or at the address in `value`."""

    type: Literal["data", "url", "file"]
    value: str
    mime_type: str = Field("", max_length=200)


class AgUiPart(AgUiModel):
    """A part of a message. Texts and images are read; AG-UI has audio, video and documents too."""

    type: str = Field(max_length=50)
    text: str = ""
    source: AgUiSource | None = None


class AgUiMessage(AgUiModel):
    """A message of the client's chat."""

    id: Id
    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    content: Annotated[
        Annotated[str, Tag("(text)")]
        | Annotated[list[AgUiPart], Field(max_length=MAX_BLOCKS), Tag("(blocks)")]
        | Annotated[dict[str, JsonValue], Tag("(activity)")]
        | Annotated[None, Tag("(none)")],
        Discriminator(lambda value: "(activity)" if isinstance(value, dict) else optional_content_kind(value)),
    ] = None
    name: str | None = Field(None, max_length=MAX_ID)
    tool_calls: list[ImportedCall] | None = Field(None, max_length=MAX_CALLS)
    tool_call_id: str | None = Field(None, max_length=MAX_ID)
    error: str | None = None


class FrontEndTool(ClientToolIn):
    """A tool that the client runs. Without a schema it takes no arguments."""

    model_config = FOREIGN

    description: str = Field(max_length=4_000)

    @field_validator("parameters", mode="before")
    @classmethod
    def _read_parameters(cls, given: object) -> object:
        return {"type": "object", "properties": {}} if given in (None, {}) else given


class AmbientContext(AgUiModel):
    """What the client's application says about itself, such as the page that its user sees."""

    description: str
    value: str


class ResumeEntry(AgUiModel):
    """The answer to an interrupt."""

    interrupt_id: Id
    status: Literal["resolved", "cancelled"]
    payload: JsonValue = None


class RunAgentInput(AgUiModel):
    """A request to run an agent. `state` and `forwarded_props` are the client's own."""

    thread_id: ExternalId = Field(description="the id of a session, or an id of your own for it")
    run_id: Id = Field(description="a request that is sent again with the same id gets the same run")
    parent_run_id: str | None = Field(None, max_length=MAX_ID)
    protocol_version: str | None = Field(None, max_length=MAX_ID, description="not sent by clients from before 1.0")
    messages: list[AgUiMessage] = Field(max_length=MAX_MESSAGES)
    state: JsonValue = None
    tools: Annotated[list[FrontEndTool], Field(max_length=MOST_TOOLS), AfterValidator(check_client_tools)] = Field(
        default_factory=list
    )
    context: list[AmbientContext] = Field(default_factory=list, max_length=100)
    resume: list[ResumeEntry] = Field(default_factory=list, max_length=MAX_CALLS)

    @property
    def asks_nothing(self) -> bool:
        """Whether the request has neither a new message nor answers: the client wants to see the thread."""
        sent = [message for message in self.messages if message.role not in NOT_SENT | INSTRUCTING]
        return not self.resume and (not sent or sent[-1].role == "assistant")

    def read_messages(self, source: Source) -> tuple[str, tuple[NewMessage, ...]]:
        """Return what the agent is told besides its own instructions, and the messages of the chat.

        Raises InvalidInput for a part of a kind that is not supported, or a result that names no call.
        """
        called = dict[str, str]()
        newest_result = {one.tool_call_id: place for place, one in enumerate(self.messages) if one.role == "tool"}
        told, messages = list[str](), list[NewMessage]()
        for place, message in enumerate(self.messages):
            if message.role in INSTRUCTING:
                told.append(text_of(_content(message, place)))
            elif message.role == "tool" and newest_result[message.tool_call_id] != place:
                continue  # a client's own result of a call that it has approved, before the tool's
            elif message.role not in NOT_SENT:
                called |= {call.id: call.function.name for call in message.tool_calls or ()}
                messages.append(_read(message, place, called, source))
        while self.resume and messages and messages[-1].role is Role.ASSISTANT and not messages[-1].tool_calls:
            messages.pop()  # what was shown of an answer before the run waited
        told += [f"{one.description}: {one.value}" for one in self.context]
        return "\n\n".join(text for text in told if not is_blank(text)), tuple(messages)

    def decide(self, author: str, wait: Wait) -> tuple[Resolution, ...]:
        """Return what the request gives to the calls of a wait. Raises InvalidInput for an answer that does not fit."""
        given = tuple(_resolution(place, entry, wait, author) for place, entry in enumerate(self.resume))
        try:
            check_answers(wait, given)
        except InvalidInput as error:
            raise InvalidInput(error.detail, field="resume") from error
        return given


def _read(message: AgUiMessage, place: int, called: Mapping[str, str], source: Source) -> NewMessage:
    content = _content(message, place)
    match message.role:
        case "tool":
            if not message.tool_call_id:
                raise InvalidInput(
                    "A tool message needs the `toolCallId` of the call that it answers.",
                    field=f"messages.{place}.toolCallId",
                )
            name = called.get(message.tool_call_id)
            said = content or message.error or ""
            return NewMessage(Role.TOOL, said, source, tool_call_id=message.tool_call_id, name=name)
        case "assistant":
            made = message.tool_calls or ()
            calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in made)
            return NewMessage(Role.ASSISTANT, content, source, tool_calls=calls)
        case _:
            metadata: dict[str, JsonValue] = {CLIENT_MESSAGE_ID: message.id, CLIENT_PROTOCOL: PROTOCOL}
            return NewMessage(Role.USER, content, source, author=message.name, metadata=metadata)


def _content(message: AgUiMessage, place: int) -> Content:
    if isinstance(message.content, list):
        return content_of_blocks(_blocks(message.content, f"messages.{place}.content"))
    return message.content if isinstance(message.content, str) else ""


def _blocks(parts: list[AgUiPart], field: str) -> Iterator[Block]:
    for number, part in enumerate(parts):
        match part:
            case AgUiPart(type="text", text=text):
                yield TextBlock(text)
            case AgUiPart(type="image", source=AgUiSource() as source):
                yield _image(source, f"{field}.{number}.source")
            case _:
                raise InvalidInput(
                    f"A message has parts of the types `text` and `image`, not {part.type!r}.",
                    field=f"{field}.{number}",
                )


def _image(source: AgUiSource, field: str) -> ImageBlock:
    url = f"data:{source.mime_type};base64,{source.value}" if source.type == "data" else source.value
    if source.type == "file" or not IMAGE.match(url):
        raise InvalidInput(
            "An image is base64 data with its `mimeType`, such as image/png, or has an https or `data:` address.",
            field=field,
        )
    return ImageBlock(url)


def _resolution(place: int, entry: ResumeEntry, wait: Wait, author: str) -> Resolution:
    kind, is_given = wait.kind_of(entry.interrupt_id), entry.status == "resolved"
    if kind is None:
        known = ", ".join(awaited.id for awaited in wait.calls)
        raise InvalidInput(
            f"The thread has no interrupt {entry.interrupt_id!r}; it has: {known}.",
            field=f"resume.{place}.interruptId",
        )
    if kind is WaitKind.APPROVAL:
        return _decision(entry, f"resume.{place}.payload", author)
    payload = entry.payload if is_given else "The user gave no answer."
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    check_length(text, f"resume.{place}.payload", subject="An answer")
    return Resolution(entry.interrupt_id, text, is_error=not is_given, author=author)


def _decision(entry: ResumeEntry, field: str, author: str) -> Resolution:
    """Return a person's decision. `{"approved": true, "editedArgs": {…}}` runs the call with other arguments."""
    text, arguments = "", None
    match entry.payload:
        case _ if entry.status == "cancelled":
            decision = ApprovalDecision.REJECT
        case {"approved": True, "editedArgs": dict() as edited}:
            decision, arguments = ApprovalDecision.EDIT, json.dumps(edited, ensure_ascii=False)
        case True | {"approved": True}:
            decision = ApprovalDecision.APPROVE
        case {"approved": False, "reason": str() as text}:
            decision = ApprovalDecision.REJECT
        case False | {"approved": False}:
            decision = ApprovalDecision.REJECT
        case _:
            raise InvalidInput(
                'A call waits for approval: send {"approved": true}, {"approved": true, "editedArgs": {…}} or '
                '{"approved": false, "reason": "…"}.',
                field=field,
            )
    check_length(arguments or "", field, subject="The JSON of edited arguments")
    check_length(text, field, MAX_REASON, "A reason")
    return Resolution(entry.interrupt_id, text, decision=decision, arguments=arguments, author=author)
