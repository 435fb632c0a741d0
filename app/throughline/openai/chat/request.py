"""The body of `POST /v1/chat/completions`, in OpenAI's form, and what of it this service does not have."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Discriminator, Field, JsonValue, Tag

from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import InvalidInput
from throughline.domain.prompt import Overrides, ResponseFormat, ToolSpec
from throughline.http.fields import STRICT
from throughline.http.openai_messages import MAX_MESSAGES, ImportedMessage
from throughline.openai.read_request import ChatSampling, Unsupported
from throughline.openai.responses.request import (
    ChoiceMode,
    FunctionTool,
    Metadata,
    PlainFormat,
    check_tools,
    choice_kind,
)

SESSION_KEY = "session_id"
"""Key in a request's metadata that names the session to continue."""

NO_AUDIO = "answers are text"
OLD_TOOLS = "`tools` and `tool_choice` have taken its place"
UNSUPPORTED: Mapping[str, Unsupported] = {
    "n": Unsupported("a turn has one answer", (None, 1)),
    "logprobs": Unsupported("probabilities of tokens are not read", (None, False)),
    "top_logprobs": Unsupported("probabilities of tokens are not read", (None, 0)),
    "modalities": Unsupported(NO_AUDIO, (None, ["text"])),
    "audio": Unsupported(NO_AUDIO),
    "functions": Unsupported(OLD_TOOLS, (None, [])),
    "function_call": Unsupported(OLD_TOOLS),
    "web_search_options": Unsupported("an agent searches the web only with a tool of its own"),
    "moderation": Unsupported("nothing is moderated"),
}
"""Fields of OpenAI's that are refused, because they ask for what this service does not have.

All others that are not fields of CreateCompletion are unknown.
"""


class ChatFunction(FunctionTool):
    """A function that the client runs. Some clients repeat its type here."""

    type: Literal["function"] = "function"


class ChatTool(BaseModel):
    """A tool that the client runs."""

    model_config = STRICT

    type: Literal["function"]
    function: ChatFunction


def _check_chat_tools(tools: list[ChatTool]) -> list[ChatTool]:
    check_tools([tool.function for tool in tools])
    return tools


class NamedChatTool(BaseModel):
    """The choice of one tool."""

    model_config = STRICT

    class Function(BaseModel):
        """The name of the function to call."""

        model_config = STRICT

        name: str = Field(max_length=64)

    type: Literal["function"]
    function: Function


class AllowedChatTools(BaseModel):
    """The choice among some of the tools."""

    model_config = STRICT

    class Allowed(BaseModel):
        """The tools, and whether one of them must be called."""

        model_config = STRICT

        mode: Literal["auto", "required"]
        tools: list[NamedChatTool] = Field(min_length=1, max_length=128)

    type: Literal["allowed_tools"]
    allowed_tools: Allowed


ChatToolChoice = Annotated[
    Annotated[ChoiceMode, Tag("(word)")]
    | Annotated[NamedChatTool, Tag("(named)")]
    | Annotated[AllowedChatTools, Tag("(allowed)")],
    Discriminator(choice_kind),
]


class ChatSchemaFormat(BaseModel):
    """Answers as JSON that fits a schema."""

    model_config = STRICT

    class Schema(BaseModel):
        """The schema and its name."""

        model_config = STRICT

        name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
        schema_: dict[str, JsonValue] = Field(alias="schema")
        description: str | None = Field(None, max_length=1_000)
        strict: bool | None = None

    type: Literal["json_schema"]
    json_schema: Schema

    def read(self) -> ResponseFormat:
        """Return the format as a domain value."""
        wanted = self.json_schema
        return ResponseFormat(wanted.schema_, wanted.name, wanted.description or "", wanted.strict)


class ChatStreamOptions(BaseModel):
    """Options of a stream. Nothing is obfuscated, whatever they say."""

    model_config = STRICT

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CreateCompletion(ChatSampling):
    """A request for a chat completion by an agent, in OpenAI's form."""

    model: str = Field(min_length=1, max_length=100, examples=["assistant"])
    messages: list[ImportedMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    store: bool | None = None
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    metadata: Metadata | None = None
    tools: Annotated[list[ChatTool], Field(max_length=128), AfterValidator(_check_chat_tools)] | None = None
    tool_choice: ChatToolChoice = None
    response_format: Annotated[PlainFormat | ChatSchemaFormat, Field(discriminator="type")] | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1, le=10**9)
    max_completion_tokens: int | None = Field(None, ge=1, le=10**9)
    user: str | None = Field(None, max_length=512)
    safety_identifier: str | None = Field(None, max_length=512)
    prompt_cache_key: str | None = Field(None, max_length=512)

    @property
    def session_name(self) -> str | None:
        """The session that the metadata name, None if they name none."""
        return (self.metadata or {}).get(SESSION_KEY)

    @property
    def includes_usage(self) -> bool:
        """Whether the last chunk of a stream says what the answer has used."""
        return self.stream_options is not None and self.stream_options.include_usage is True

    def not_applied(self, *, is_stored: bool = False) -> tuple[str, ...]:
        """Return the names of the request's fields that are not applied, `store: false` too if the chat is stored.

        `parallel_tool_calls` is left out where `tool_choice` names one tool: only one call is made then.
        """
        is_one_call = isinstance(self.tool_choice, NamedChatTool)
        named = tuple(name for name in super().not_applied() if not (is_one_call and name == "parallel_tool_calls"))
        return (*named, "store") if is_stored and self.store is False else named

    def read_metadata(self) -> JsonObject:
        """Return the metadata that are stored with the message."""
        return {name: value for name, value in (self.metadata or {}).items() if name != SESSION_KEY}

    def read_tools(self) -> tuple[ToolSpec, ...]:
        """Return the client's tools as domain values."""
        return tuple(tool.function.read() for tool in self.tools or ())

    def read_overrides(self, instructions: str) -> Overrides:
        """Return what the request changes of the agent; `instructions` are its system and developer messages.

        Raises InvalidInput for two limits of the answer that differ.
        """
        limits = {limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None}
        if len(limits) > 1:
            raise InvalidInput(
                "`max_tokens` and `max_completion_tokens` differ. Send one of them.", field="max_completion_tokens"
            )
        choice, allowed = self._read_tool_choice()
        return Overrides(
            temperature=self.temperature,
            instructions=instructions or None,
            response_format=self._read_format(),
            max_output_tokens=next(iter(limits), None),
            tool_choice=None if choice == "auto" else choice,
            allowed_tools=allowed,
        ).leniently()

    def echo(self, *, is_stored: bool) -> JsonObject:
        """Return what the service keeps of the request without using it."""
        named = ("user", "safety_identifier", "prompt_cache_key")
        return {"store": is_stored, "metadata": self.read_metadata(), **{name: getattr(self, name) for name in named}}

    def _read_tool_choice(self) -> tuple[str | None, tuple[str, ...] | None]:
        """Return the mode or the one tool's name, and the names of the allowed tools, None for all."""
        match self.tool_choice:
            case NamedChatTool(function=function):
                return function.name, None
            case AllowedChatTools(allowed_tools=allowed):
                return allowed.mode, tuple(dict.fromkeys(tool.function.name for tool in allowed.tools))
            case mode:
                return mode, None

    def _read_format(self) -> ResponseFormat | None:
        match self.response_format:
            case ChatSchemaFormat() as wanted:
                return wanted.read()
            case PlainFormat(type="json_object"):
                return ResponseFormat({"type": "object"}, "object")
            case _:
                return None
