"""Requests to chat models and their answers: prompt, tool specifications, and the events of a streamed answer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

from throughline.domain.basic_types import JsonObject
from throughline.domain.message import Content, Role, ToolCall
from throughline.domain.reasoning import Reasoning


class OverrideField(StrEnum):
    """A field of an agent that a request may override, if the agent allows it."""

    MODEL = "model"
    TEMPERATURE = "temperature"
    INSTRUCTIONS = "instructions"
    RESPONSE_FORMAT = "response_format"


NO_TOOLS, ANY_TOOL = "none", "required"
"""Tool choices that forbid tools, and that demand any of them, as OpenAI's API names them."""


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The JSON schema that an answer must fit.

    `name`, `description` and `strict` are sent to providers that take a schema, as OpenAI's API defines them.
    """

    schema: JsonObject
    name: str = "answer"
    description: str = ""
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class Overrides:
    """The overrides of one request; what is not given stays the agent's.

    `instructions` are appended to the system prompt. `max_output_tokens` limits each answer further than the reserve.
    `tool_choice` says for the first model call whether tools may or must be called: NO_TOOLS, ANY_TOOL or a tool's
    name. `allowed_tools` are the names of the only tools that this call is sent, None for all. Every agent allows these
    three.

    `is_lenient`: the client cannot know what the agent allows. What the agent does not allow is then lowered to what
    every agent may take, unless its file is strict.
    """

    model: str | None = None
    temperature: float | None = None
    instructions: str | None = None
    response_format: ResponseFormat | None = None
    max_output_tokens: int | None = None
    tool_choice: str | None = None
    allowed_tools: tuple[str, ...] | None = None
    is_lenient: bool = False

    @property
    def chosen_tools(self) -> tuple[str, ...]:
        """The names of the tools that the request chooses, empty if it names none."""
        if self.tool_choice is None or self.tool_choice in {NO_TOOLS, ANY_TOOL}:
            return self.allowed_tools or ()
        return (self.tool_choice,)

    def leniently(self) -> "Overrides":
        """Return the overrides as those of a client that cannot know what the agent allows."""
        return replace(self, is_lenient=True) if any(self.given()) else self

    def given(self) -> Iterator[OverrideField]:
        """Yield the names of the fields that are not None and that the agent has to allow."""
        for name in OverrideField:
            if getattr(self, name) is not None:
                yield name


NO_OVERRIDES = Overrides()


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """Parameters of a model call; what is not set is not sent, so that the provider's default holds.

    - `stop`: texts at which the answer ends. `seed`: asks for the same answer to the same prompt.
    - `reasoning_effort`: how much a reasoning model thinks; the names are the provider's.
    - `parallel_tool_calls`: whether one step may call several tools.
    - `include_thoughts`: asks Gemini for its thoughts as text.
    - `return_reasoning`: whether the steps of a run are sent back with their reasoning as text.
    - `headers`, `body`: further HTTP headers, and further members of the request's JSON body.
    """

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: str | None = None
    parallel_tool_calls: bool | None = None
    include_thoughts: bool | None = None
    return_reasoning: bool | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: JsonObject = field(default_factory=dict)

    def given(self) -> Iterator[tuple[str, object]]:
        """Yield the names and values of the parameters that are set."""
        for declared in fields(self):
            value = getattr(self, declared.name)
            if value is not None and value not in ((), {}):
                yield declared.name, value


NO_PARAMETERS = ModelParameters()


def strings_in(parameters: ModelParameters) -> Iterator[str]:
    """Yield the values of headers and all texts in the body: an operator may have put secrets there."""
    yield from parameters.headers.values()
    waiting: list[object] = [*parameters.body.values()]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case list() as items:
                waiting += items
            case dict() as members:
                waiting += members.values()
            case _:
                pass


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PromptMessage:
    """A message of a prompt. `position` is that of the stored message it shows, None if it shows none.

    `reasoning` is set for a step of the running turn whose provider wants parts of it back.
    """

    role: Role
    content: Content
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    position: int | None = None
    reasoning: Reasoning | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system message (not sent if empty) and the conversation after it."""

    system: str
    messages: tuple[PromptMessage, ...]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool for the model. `parameters` is a JSON schema of type object.

    `strict` is sent to providers that can guarantee arguments of that schema; None: the provider's default.
    """

    name: str
    description: str
    parameters: JsonObject
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a model call as the provider reported them, and their price; None for what is not known.

    `cached_tokens` and `cache_write_tokens` are those of `input_tokens` that the provider read from its cache and wrote
    to it. `reasoning_tokens` are those of `output_tokens` that are not part of the answer's text. `cost_usd` is in US
    dollars, at the price of the day of the call.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The next piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """The next piece of what the model writes before its answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """The next piece of a tool call's arguments. `index` is the call's position among the calls of the answer.

    `call_id` and `name` are those of the whole call.
    """

    index: int
    call_id: str
    name: str
    text: str


WINDOW_FULL = "model_context_window_exceeded"
"""Anthropic's finish reason when prompt and answer filled the window before the answer reached its own limit."""

CUT_REASONS = frozenset({
    "length",
    "max_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "model_length",
    WINDOW_FULL,
})
"""Finish reasons, in lower case, of answers that were cut off by a limit."""


@dataclass(frozen=True, slots=True)
class AnswerComplete:
    """The end of a complete answer, one with a finish reason. `text` is the whole text, without the reasoning.

    `model` is the answering model as the provider named it, '' if it named none.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage
    finish_reason: str
    model: str = ""
    reasoning: Reasoning | None = None

    @property
    def is_cut(self) -> bool:
        """Whether a limit cut the answer off."""
        return self.finish_reason.lower() in CUT_REASONS


ModelEvent: TypeAlias = TextPiece | ReasoningPiece | ToolCallPiece | AnswerComplete

MAX_ANSWER_BYTES = 2_000_000
"""Default size limit of an answer: several times the longest possible answers, of 128,000 tokens."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The request for one model call. `max_output_tokens` is the reserve; with empty `tools` none are sent.

    `response_format` is sent to providers that take a JSON schema. `tool_choice` is ANY_TOOL or the name of the tool to
    be called; None leaves the choice to the model.

    `max_answer_bytes` limits the accepted answer (UTF-8; reasoning, text, and names and arguments of calls), even if
    the provider ignores `max_output_tokens`. `call_model` counts all of it, and a ChatModel counts the tool calls that
    it assembles.

    `taken_call_ids` are the ids of the run's calls, which the prompt may not show. `call_model` gives no call of the
    answer one of them.

    `may_call_tools` is False for the last call of a turn that used up its tool rounds. Providers that can forbid tool
    calls (Anthropic, OpenAI) then get the tools but must not call them; others get no tools.

    `is_shown`: readers see the answer while it is written.
    """

    prompt: Prompt
    tools: tuple[ToolSpec, ...]
    max_output_tokens: int
    may_call_tools: bool = True
    max_answer_bytes: int = MAX_ANSWER_BYTES
    parameters: ModelParameters = NO_PARAMETERS
    response_format: ResponseFormat | None = None
    tool_choice: str | None = None
    taken_call_ids: frozenset[str] = frozenset()
    is_shown: bool = True
