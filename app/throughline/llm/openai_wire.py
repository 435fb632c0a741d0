"""The OpenAI chat-completions wire, mended where LangChain's reading of a stream loses something, and read as JSON.

Imported only when such a model is used: the provider package is optional.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

import openai
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI
from openai.resources.chat.completions import AsyncCompletionsWithRawResponse
from pydantic import SecretStr

from throughline.domain.identity_cache import IdentityCache
from throughline.llm.translate_messages import argument_texts
from throughline.llm.usage_check import token_counts

_written: IdentityCache[BaseMessage, dict[str, Any]] = IdentityCache()  # Any: parsed JSON
"""Messages in the form they have on the wire."""

IDLE_CONNECTION_SECONDS = 30.0
"""So long a connection waits for the next call; httpx keeps it 5, which a tool call or a user's reading outlasts.

Servers and what stands before them mostly hang up after 60 and more; one that has is not used again.
"""


class JsonCompletions:
    """The SDK's chat completions without its typed models: JSON is sent as it is and comes back as it is.

    LangChain makes plain JSON of a prompt and of an answer's events. Between the two the SDK goes through every message
    in search of something to encode, and builds a model of every event, which together is most of what a call costs.
    """

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        """Use the client's connections, key and errors."""
        self._client = client

    @property
    def with_raw_response(self) -> AsyncCompletionsWithRawResponse:
        """The SDK's own, for what LangChain does not stream, and for what it reads the headers of."""
        return self._client.chat.completions.with_raw_response

    async def create(self, **payload: object) -> openai.AsyncStream[object]:
        """Ask for a stream, with the key for models alone: without `security` the SDK may send an admin's."""
        return await self._client.post(
            "/chat/completions",
            body=payload,
            cast_to=object,
            options={"security": {"bearer_auth": True}},
            stream=True,
            stream_cls=openai.AsyncStream[object],
        )


class StreamMendingChatOpenAI(ChatOpenAI):
    """ChatOpenAI that keeps streamed refusals, and tool calls of servers that leave out `index`; it survives odd usage.

    A message is put into the wire's form once: `to_langchain` may give the same one again.
    """

    def _get_request_payload(
        self,
        input_: LanguageModelInput,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,  # noqa: ANN401  # LangChain's signature
    ) -> dict[str, Any]:
        messages = self._convert_input(input_).to_messages()
        new = [message for message in messages if _written.find(message) is None]
        payload: dict[str, Any] = super()._get_request_payload(new, stop=stop, **kwargs)
        if "messages" not in payload:  # a model of OpenAI's newer wire, which writes messages in another way
            return super()._get_request_payload(messages, stop=stop, **kwargs)
        for message, written in zip(new, payload["messages"], strict=True):
            _written.keep(message, _with_arguments(written, argument_texts(message)))
        return {**payload, "messages": [_written.find(message) for message in messages]}

    def _convert_chunk_to_generation_chunk(
        self,
        chunk: dict[str, Any],  # LangChain's signature: the parsed JSON of one event
        default_chunk_class: type,
        base_generation_info: dict[str, Any] | None,  # LangChain's signature
    ) -> ChatGenerationChunk | None:
        chunk["usage"] = token_counts(chunk.get("usage"))  # LangChain fails at a number that is none
        deltas = _deltas(chunk)
        for delta in deltas:
            for call in delta.get("tool_calls") or ():
                call.setdefault("index", None)
                call.setdefault("function", None)  # LangChain would pass over all calls of an event: it must not
        converted = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        if converted is not None and any(delta.get("refusal") for delta in deltas):
            converted.message.additional_kwargs["refusal"] = "refused"
        return converted


def _with_arguments(written: dict[str, Any], texts: Sequence[str]) -> dict[str, Any]:  # Any: parsed JSON
    """Put the arguments as the model wrote them in place of LangChain's rewriting, which may be half as long again."""
    for call, text in zip(written.get("tool_calls") or (), texts, strict=False):
        call["function"]["arguments"] = text
    return written


def _deltas(chunk: dict[str, Any]) -> list[dict[str, Any]]:  # Any: parsed JSON
    """The deltas of one event; a choice without one gets the null that LangChain asks for."""
    choices = chunk.get("choices") or ()
    return [delta for choice in choices if (delta := choice.setdefault("delta", None))]


class CompatibleChatOpenAI(StreamMendingChatOpenAI):
    """For OpenAI-compatible servers: they know `max_tokens`, and not all its successor.

    Tools that may not be called are not named: some pass over `tool_choice` and call them (Ollama).
    """

    def _get_request_payload(
        self,
        input_: LanguageModelInput,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,  # noqa: ANN401  # LangChain's signature
    ) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if "max_completion_tokens" in payload:
            payload["max_tokens"] = payload.pop("max_completion_tokens")
        if payload.get("tool_choice") == "none":
            del payload["tool_choice"], payload["tools"]
        return payload


def make_openai(
    model: str, base_url: str | None, *, idle_seconds: float, connect_seconds: float, api_key: str | None = None
) -> ChatOpenAI:
    """Return a model on the OpenAI wire with its own HTTP client, so that it can be closed.

    Without an `api_key` the environment's is taken. Raises openai.OpenAIError where there is none.
    """
    timeout = openai.Timeout(idle_seconds, connect=connect_seconds)
    limits = copy(openai.DEFAULT_CONNECTION_LIMITS)
    limits.keepalive_expiry = IDLE_CONNECTION_SECONDS
    settings: dict[str, Any] = {  # keyword arguments of ChatOpenAI
        "model": model,
        "max_retries": 0,
        "timeout": timeout,
        "stream_usage": True,
        "stream_chunk_timeout": 0,  # ours bounds every chunk, the first one too
        "http_async_client": openai.DefaultAsyncHttpxClient(timeout=timeout, limits=limits),
    }
    if api_key is not None:
        settings["api_key"] = SecretStr(api_key)
    made = _construct(settings, base_url)
    made.async_client = JsonCompletions(made.root_async_client)
    return made


def _construct(settings: dict[str, Any], base_url: str | None) -> ChatOpenAI:  # Any: keyword arguments of ChatOpenAI
    if base_url is None:
        return StreamMendingChatOpenAI(**settings)
    return CompatibleChatOpenAI(**settings, base_url=base_url, use_responses_api=False)
