"""Protocols for chat models and token counters, for the code that builds and sends prompts."""

from collections.abc import AsyncGenerator
from enum import StrEnum
from typing import Protocol

from throughline.domain.model_window import ModelWindow
from throughline.domain.prompt import ModelEvent, ModelParameters, ModelRequest


class FormatSupport(StrEnum):
    """How a model is told of a response format: the JSON schema is sent, an instruction is, or it cannot be told."""

    SCHEMA = "schema"
    INSTRUCTION = "instruction"
    NONE = "none"


class TokenCounter(Protocol):
    """A token counter. Its `name` is stored with each count."""

    @property
    def name(self) -> str:
        """The counter's name, for example `tiktoken:cl100k_base`."""

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`; special tokens and lone surrogates count as plain text."""


class ChatModel(Protocol):
    """A configured chat model."""

    @property
    def name(self) -> str:
        """The model's full name, for example `openai:gpt-4o`."""

    @property
    def calibration_key(self) -> str:
        """Key of the model's calibration: its name, with the server's address if one is configured.

        Two servers may count and limit differently.
        """

    @property
    def address(self) -> str:
        """The address of the model's calls for display, without credentials; '' for the provider's own."""

    @property
    def context_limit(self) -> int:
        """The size of `window` in tokens."""

    @property
    def window(self) -> ModelWindow:
        """The model's window as it is known now: from its server, its profile or the service's own table."""

    @property
    def has_known_tokenizer(self) -> bool:
        """Whether the service's counter is known to count about like the model's own tokenizer."""

    @property
    def is_priced(self) -> bool:
        """Whether the cost of the model's calls is known."""

    @property
    def format_support(self) -> FormatSupport:
        """How the model is told of a response format."""

    async def ask_window(self) -> None:
        """Ask the model's server for its window if that is due.

        The first call waits for the answer, for some seconds at most. Later calls do not wait. A provider's own server
        is not asked.
        """

    def check_parameters(self, parameters: ModelParameters) -> None:
        """Raise SettingInvalid if the model's provider does not take one of the parameters."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the answer: any number of ReasoningPiece, TextPiece and ToolCallPiece, then one AnswerComplete.

        The pieces of a call together are its arguments; a call may also come whole, without pieces. If a limit cuts the
        answer off, it lacks the calls whose pieces are not complete.

        Raises ModelRejected or ModelUnavailable, or subclasses of them. Never ends without AnswerComplete or an error.
        Closing the stream closes the provider's connection.
        """


class Models(Protocol):
    """The source of chat models, by name."""

    def get(self, model: str, base_url: str | None = None, api_key_env: str | None = None) -> ChatModel:
        """Return the model for an `init_chat_model` string or `offline`; '' stands for the setting `default_llm`.

        `api_key_env` names the environment variable with the key for `base_url`. Raises SettingInvalid for an unknown
        provider, a missing package or a missing key.
        """
