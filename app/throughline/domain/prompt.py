"""What is sent to a model: the prompt, the tools it may call, and the answer that comes back."""

from dataclasses import dataclass
from typing import TypeAlias

from throughline.domain.json_types import JsonObject
from throughline.domain.message import Content, Role, ToolCall


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PromptMessage:
    """One message of a prompt. `position` names the stored message it shows, None where it shows none."""

    role: Role
    content: Content
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One system message (empty: none is sent) and the conversation after it."""

    system: str
    messages: tuple[PromptMessage, ...]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the model is told of a tool. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider reported them; None where it reported none."""

    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A further piece of the answer's text."""

    text: str


WINDOW_FULL = "model_context_window_exceeded"
"""Anthropic's reason where prompt and answer met the window before the answer met its own limit."""

CUT_REASONS = frozenset({
    "length",
    "max_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "model_length",
    WINDOW_FULL,
})
"""The finish reasons, in lower case, of an answer that met a limit before its end."""


@dataclass(frozen=True, slots=True)
class AnswerComplete:
    """The end of a complete answer: it came with a finish reason. `text` is the whole text."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage
    finish_reason: str

    @property
    def is_cut(self) -> bool:
        """Whether the model had more to say than it was allowed to."""
        return self.finish_reason.lower() in CUT_REASONS


ModelEvent: TypeAlias = TextDelta | AnswerComplete

MAX_ANSWER_BYTES = 2_000_000
"""Some times what the longest answers have: 128,000 tokens."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `max_output_tokens` is the reserve; an empty `tools` sends none.

    `max_answer_bytes` is what a turn takes in of an answer (UTF-8; text, names and arguments of calls), whatever the
    provider makes of `max_output_tokens`: call_model counts the text, and a ChatModel the calls it puts together.

    `may_call_tools` is False for the last call of a turn that used up its tool rounds: the tools are then named but
    forbidden where the provider heeds that (Anthropic, OpenAI), and held back elsewhere.
    """

    prompt: Prompt
    tools: tuple[ToolSpec, ...]
    max_output_tokens: int
    may_call_tools: bool = True
    max_answer_bytes: int = MAX_ANSWER_BYTES
