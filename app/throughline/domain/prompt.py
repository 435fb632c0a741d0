"""Requests to chat models and their answers: prompt, tool specifications, and the events of a streamed answer."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

from throughline.domain.json_types import JsonObject
from throughline.domain.message import Content, Role, ToolCall
from throughline.domain.model_parameters import NO_PARAMETERS, ModelParameters
from throughline.domain.overrides import ResponseFormat
from throughline.domain.reasoning import Reasoning


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
class TextDelta:
    """The next piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of what the model writes before its answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
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


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | AnswerComplete

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
