"""Request bodies that clients may send. Unknown fields are refused."""

import json
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    model_validator,
)

from throughline.context.policy import MAX_INSTRUCTIONS
from throughline.domain.message import LAST_POSITION, Content, ImageBlock, TextBlock, is_blank
from throughline.domain.prompt import NO_OVERRIDES, Overrides
from throughline.domain.tool import MAX_OUTPUT, MAX_REASON, ApprovalDecision, Resolution
from throughline.http.fields import (
    IMAGE_URL,
    MAX_BLOCKS,
    STRICT,
    VISIBLE,
    ExternalId,
    Metadata,
    Title,
    content_kind,
    optional_content_kind,
)
from throughline.wire.overrides import ClientTools, OverridesIn


def _check_not_blank(text: str) -> str:
    if is_blank(text):
        raise ValueError("is blank; write a message")
    return text


class CreateSession(BaseModel):
    """A new session with an agent."""

    model_config = STRICT

    agent: str = Field(min_length=1, max_length=100, examples=["assistant"])
    title: Title = ""
    metadata: Metadata = Field(default_factory=dict)
    external_id: ExternalId | None = Field(
        None, description="your own id for the session; a session of yours that has it already is returned unchanged"
    )


class BranchSession(BaseModel):
    """The place at which a session is branched."""

    model_config = STRICT

    at: int = Field(
        ge=0,
        le=LAST_POSITION,
        description="position of the last message that is copied; 0: none. A tool call and its results cannot be "
        "separated",
    )
    title: Title = Field("", description="default: the title of the session, unless it was made from a later message")


class ChangeSession(BaseModel):
    """Changes to a session. An omitted field stays as it is; metadata is replaced as a whole."""

    model_config = STRICT

    title: Title = ""
    metadata: Metadata = Field(default_factory=dict)
    archived: bool = Field(
        default=False, description="accepts no further messages; can still be read, summarized, restored and pinned in"
    )
    summary_instructions: str = Field(
        "",
        max_length=MAX_INSTRUCTIONS,
        description="what every summary of the session has to keep; empty: nothing special",
    )
    agent: str = Field(
        "", max_length=64, description="the agent that answers from the next message on; queued messages keep theirs"
    )
    external_id: ExternalId | None = Field(None, description="your own id for the session; null removes it")


Text: TypeAlias = Annotated[
    str, AfterValidator(_check_not_blank), Field(min_length=1, json_schema_extra={"pattern": VISIBLE})
]


class TextPart(BaseModel):
    """A block of text."""

    model_config = STRICT

    type: Literal["text"]
    text: Text


class ImagePart(BaseModel):
    """A block that shows an image: an https address or a `data:` URL with a base64 body."""

    model_config = STRICT

    type: Literal["image"]
    url: str = Field(pattern=IMAGE_URL)
    detail: Literal["auto", "low", "high"] = Field("auto", description="default: auto")


Part: TypeAlias = Annotated[TextPart | ImagePart, Field(discriminator="type")]
Parts: TypeAlias = Annotated[list[Part], Field(min_length=1, max_length=MAX_BLOCKS)]


Said: TypeAlias = Annotated[
    Annotated[Text, Tag("(text)")] | Annotated[Parts, Tag("(blocks)")], Discriminator(content_kind)
]


class SendMessage(BaseModel):
    """A message of the user, and how to answer it."""

    model_config = STRICT

    content: Said = Field(examples=["Hello!"])
    metadata: Metadata = Field(default_factory=dict)
    on_busy: Literal["enqueue", "reject", "interrupt"] = Field(
        "enqueue", description="what happens while a turn of the session is running; default: enqueue"
    )
    overrides: OverridesIn | None = Field(None, description="what this turn changes of the agent, if it allows it")
    tools: ClientTools | None = Field(
        None,
        description="tools that the client runs: the run waits for their results (`POST /v1/runs/{run_id}/resume`)",
    )

    def as_content(self) -> Content:
        """Return the content as the type of `domain/message.py`: text, or text and image blocks."""
        return _as_content(self.content)

    def read_overrides(self) -> Overrides:
        """Return the overrides as a domain value."""
        return NO_OVERRIDES if self.overrides is None else self.overrides.read()


class PreviewContext(BaseModel):
    """A message to preview without sending it. Without content, an empty message is assumed."""

    model_config = STRICT

    content: Annotated[
        Annotated[Text, Tag("(text)")] | Annotated[Parts, Tag("(blocks)")] | Annotated[None, Tag("(none)")],
        Discriminator(optional_content_kind),
    ] = Field(None, examples=["What next?"])

    def as_content(self) -> Content | None:
        """Return the content as the type of `domain/message.py`: text or blocks, None if it was omitted."""
        return None if self.content is None else _as_content(self.content)


def _as_content(content: str | list[Part]) -> Content:
    if isinstance(content, str):
        return content
    return tuple(
        TextBlock(part.text) if isinstance(part, TextPart) else ImageBlock(part.url, part.detail) for part in content
    )


class Summarize(BaseModel):
    """Options of a summary that is written on demand."""

    model_config = STRICT

    instructions: str = Field(
        "",
        max_length=MAX_INSTRUCTIONS,
        description="instructions for the summary, also about messages that are summarized already",
    )
    from_position: int | None = Field(
        None,
        ge=1,
        le=LAST_POSITION,
        description="position from which messages are read again; default: the first message with `instructions`, else "
        "the first that is not summarized",
    )


MAX_CALLS = 128


class CallResolution(BaseModel):
    """What one waiting call is given: `output` for a result or an answer, `decision` for an approval."""

    model_config = STRICT

    call_id: str = Field(min_length=1, max_length=200)
    output: Annotated[str, Field(max_length=MAX_OUTPUT)] | None = Field(
        None, description="the result of a client's tool, or the answer to a question"
    )
    is_error: bool = Field(default=False, description="the client's tool failed; `output` says why")
    decision: Literal["approve", "edit", "reject"] | None = Field(None, description="whether the call may be run")
    arguments: dict[str, JsonValue] | None = Field(None, description="with `edit`: the arguments to run the call with")
    reason: str = Field("", max_length=MAX_REASON, description="with `reject`: what the model is told")

    @model_validator(mode="after")
    def _check_one_thing_is_given(self) -> "CallResolution":
        if (self.output is None) is (self.decision is None):
            raise ValueError("needs `output` or `decision`, and not both")
        if (self.decision == "edit") is not (self.arguments is not None):
            raise ValueError("needs `arguments` with the decision `edit`, and only with it")
        if self.is_error and self.output is None:
            raise ValueError("has `is_error` without `output`")
        if self.reason and self.decision != "reject":
            raise ValueError("has a `reason` without the decision `reject`")
        return self

    def read(self, author: str | None) -> Resolution:
        """Return the resolution as a domain value, given by `author`."""
        arguments = None if self.arguments is None else json.dumps(self.arguments, ensure_ascii=False)
        decision = None if self.decision is None else ApprovalDecision(self.decision)
        text = self.reason if self.output is None else self.output
        return Resolution(self.call_id, text, self.is_error, decision, arguments, author)


class ResumeRun(BaseModel):
    """What the calls of a waiting run are given. The run goes on once none of its calls waits any more."""

    model_config = STRICT

    calls: list[CallResolution] = Field(min_length=1, max_length=MAX_CALLS)
