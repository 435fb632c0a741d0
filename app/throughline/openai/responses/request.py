"""The body of `POST /v1/responses`, in OpenAI's form, and what of it this service does not have."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Discriminator, Field, JsonValue, Tag

from throughline.domain.basic_types import JsonObject
from throughline.domain.message import is_blank
from throughline.domain.prompt import Overrides, ResponseFormat, ToolSpec
from throughline.http.fields import STRICT
from throughline.openai.input_items import Input
from throughline.openai.read_request import ResponseSampling, Unsupported, Word
from throughline.wire.overrides import ClientToolIn, check_client_tools

UNSUPPORTED: Mapping[str, Unsupported] = {
    "max_tool_calls": Unsupported("`max_tool_rounds` in the agent's file limits tool calls"),
    "top_logprobs": Unsupported("probabilities of tokens are not read", (None, 0)),
    "prompt": Unsupported("there are no stored prompts; an agent has one of its own"),
    "moderation": Unsupported("nothing is moderated"),
}
"""Fields of OpenAI's that are refused, because they ask for what this service does not have.

All others that are not fields of CreateResponse are unknown.
"""

MAX_PAIRS, MAX_NAME, MAX_VALUE = 16, 64, 512


def _check_metadata(metadata: dict[str, str]) -> dict[str, str]:
    if len(metadata) > MAX_PAIRS:
        raise ValueError(f"has {len(metadata)} pairs; at most {MAX_PAIRS} are allowed")
    if any(len(name) > MAX_NAME or len(value) > MAX_VALUE for name, value in metadata.items()):
        raise ValueError(f"has a name of more than {MAX_NAME}, or a value of more than {MAX_VALUE} characters")
    return metadata


Metadata = Annotated[dict[str, str], AfterValidator(_check_metadata)]


class ConversationName(BaseModel):
    """A conversation, named by an object."""

    model_config = STRICT

    id: str = Field(max_length=200)


class FunctionTool(BaseModel):
    """A tool that the client runs."""

    model_config = STRICT

    type: Literal["function"]
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str | None = Field(None, max_length=4_000)
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None

    def read(self) -> ToolSpec:
        """Return the tool as a domain value."""
        parameters: JsonObject = {"type": "object", "properties": {}} if self.parameters is None else self.parameters
        return ToolSpec(self.name, self.description or "", parameters, self.strict)


def check_tools(tools: Sequence[FunctionTool]) -> None:
    """Check the client's tools. Raises ValueError for what `check_client_tools` does not accept."""
    check_client_tools([
        ClientToolIn(name=tool.name, description=tool.description or "", parameters=dict(tool.read().parameters))
        for tool in tools
    ])


def _check_tools(tools: list[FunctionTool]) -> list[FunctionTool]:
    check_tools(tools)
    return tools


Tools = Annotated[list[FunctionTool], Field(max_length=128), AfterValidator(_check_tools)]


class NamedTool(BaseModel):
    """The choice of one tool."""

    model_config = STRICT

    type: Literal["function"]
    name: str = Field(max_length=64)


class AllowedTools(BaseModel):
    """The choice among some of the tools."""

    model_config = STRICT

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1, max_length=128)


def choice_kind(value: object) -> str:
    """Return the union tag of a tool choice, for validation and its errors."""
    if value is None or isinstance(value, str):
        return "(word)"
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "(allowed)" if kind == "allowed_tools" else "(named)"


ChoiceMode = Literal["auto", "none", "required"] | None
ToolChoice = Annotated[
    Annotated[ChoiceMode, Tag("(word)")]
    | Annotated[NamedTool, Tag("(named)")]
    | Annotated[AllowedTools, Tag("(allowed)")],
    Discriminator(choice_kind),
]


class PlainFormat(BaseModel):
    """Answers as text, or as any JSON object."""

    model_config = STRICT

    type: Literal["text", "json_object"]


class SchemaFormat(BaseModel):
    """Answers as JSON that fits a schema."""

    model_config = STRICT

    type: Literal["json_schema"]
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    schema_: dict[str, JsonValue] = Field(alias="schema")
    description: str | None = Field(None, max_length=1_000)
    strict: bool | None = None


class TextOptions(BaseModel):
    """The form of an answer."""

    model_config = STRICT

    format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = None
    verbosity: Word | None = None

    def read(self) -> ResponseFormat | None:
        """Return the format that the answer has to fit, None for plain text."""
        match self.format:
            case SchemaFormat() as wanted:
                return ResponseFormat(wanted.schema_, wanted.name, wanted.description or "", wanted.strict)
            case PlainFormat(type="json_object"):
                return ResponseFormat({"type": "object"}, "object")
            case _:
                return None


class StreamOptions(BaseModel):
    """Options of a stream. Nothing is obfuscated, whatever they say."""

    model_config = STRICT

    include_obfuscation: bool | None = None


class CreateResponse(ResponseSampling):
    """A request for a response of an agent, in OpenAI's form."""

    model: str = Field(min_length=1, max_length=100, examples=["assistant"])
    input: Input = Field(examples=["Hello!"])
    instructions: str | None = Field(None, max_length=100_000)
    previous_response_id: str | None = Field(None, max_length=200)
    conversation: str | ConversationName | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: Metadata | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice = None
    text: TextOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    max_output_tokens: int | None = Field(None, ge=1, le=10**9)
    user: str | None = Field(None, max_length=512)
    safety_identifier: str | None = Field(None, max_length=512)
    prompt_cache_key: str | None = Field(None, max_length=512)

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation, None if the request names none."""
        return self.conversation.id if isinstance(self.conversation, ConversationName) else self.conversation

    @property
    def is_stored(self) -> bool:
        """Whether the response is stored: False only for `store: false`."""
        return self.store is not False

    def not_applied(self) -> tuple[str, ...]:
        """Return the names of the request's fields that are not applied. What joins a conversation is stored."""
        is_stored_anyway = self.store is False and self.conversation is not None
        is_long_anyway = self.text is not None and self.text.verbosity not in {None, "medium"}
        named = (("store", is_stored_anyway), ("text.verbosity", is_long_anyway))
        return (*super().not_applied(), *(name for name, is_named in named if is_named))

    def read_tools(self) -> tuple[ToolSpec, ...]:
        """Return the client's tools as domain values."""
        return tuple(tool.read() for tool in self.tools or ())

    def read_overrides(self, instructed: str) -> Overrides:
        """Return what the request changes of the agent. `instructed` are the instructions among its input items."""
        instructions = "\n\n".join(text for text in (self.instructions or "", instructed) if not is_blank(text))
        choice, allowed = self._read_tool_choice()
        return Overrides(
            temperature=self.temperature,
            instructions=instructions or None,
            response_format=None if self.text is None else self.text.read(),
            max_output_tokens=self.max_output_tokens,
            tool_choice=None if choice == "auto" else choice,
            allowed_tools=allowed,
        ).leniently()

    def echo(self) -> JsonObject:
        """Return what the service only shows again with the response."""
        return {
            "previous_response_id": self.previous_response_id,
            "has_conversation": self.conversation is not None,
            "background": self.background is True,
            "store": self.is_stored,
            "metadata": dict(self.metadata or {}),
            "user": self.user,
            "safety_identifier": self.safety_identifier,
            "prompt_cache_key": self.prompt_cache_key,
        }

    def _read_tool_choice(self) -> tuple[str | None, tuple[str, ...] | None]:
        """Return the mode or the one tool's name, and the names of the allowed tools, None for all."""
        match self.tool_choice:
            case NamedTool(name=name):
                return name, None
            case AllowedTools(mode=mode, tools=tools):
                return mode, tuple(dict.fromkeys(tool.name for tool in tools))
            case mode:
                return mode, None
