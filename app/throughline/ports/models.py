"""Chat models and token counters, as whoever prepares or sends a prompt needs them."""

from collections.abc import AsyncGenerator
from typing import Protocol

from throughline.domain.prompt import ModelEvent, ModelRequest


class TokenCounter(Protocol):
    """Counts tokens. `name` is stored beside each count."""

    @property
    def name(self) -> str:
        """The counter's name, for example `tiktoken:cl100k_base`."""

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`; special tokens in it are plain text."""


class ChatModel(Protocol):
    """One configured chat model."""

    @property
    def name(self) -> str:
        """The model's full name, for example `openai:gpt-4o`."""

    @property
    def calibration_key(self) -> str:
        """Under what its calibration is kept: the name, with the server's address where it has one of its own."""

    @property
    def context_limit(self) -> int:
        """The model's window in tokens, as its profile or our table knows it."""

    @property
    def has_known_tokenizer(self) -> bool:
        """Whether our counter is known to count much like this model's own."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the answer: any number of TextDelta, then exactly one AnswerComplete.

        Raises the ModelRejected and ModelUnavailable families; never returns without AnswerComplete.
        """


class Models(Protocol):
    """Where chat models come from."""

    def get(self, model: str, base_url: str | None = None, api_key_env: str | None = None) -> ChatModel:
        """Return the model for an `init_chat_model` string or `offline`; '' is the setting `default_llm`.

        `api_key_env` names the variable with the key for `base_url`.
        Raises SettingInvalid for an unknown provider, a missing package or a missing key.
        """
