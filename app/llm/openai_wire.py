"""The OpenAI chat-completions wire, mended where LangChain's reading of a stream loses something.

Imported only when such a model is used: the provider package is optional.
"""

from typing import Any

import openai
from langchain_core.language_models import LanguageModelInput
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from app.llm.providers import PLACEHOLDER_KEY


class StreamMendingChatOpenAI(ChatOpenAI):
    """ChatOpenAI that keeps streamed refusals, and tool calls of servers that leave out `index`."""

    def _convert_chunk_to_generation_chunk(
        self,
        chunk: dict[str, Any],  # LangChain's signature: the parsed JSON of one event
        default_chunk_class: type,
        base_generation_info: dict[str, Any] | None,  # LangChain's signature
    ) -> ChatGenerationChunk | None:
        deltas = _deltas(chunk)
        for delta in deltas:
            for call in delta.get("tool_calls") or ():
                call.setdefault("index", None)
        converted = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        if converted is not None and any(delta.get("refusal") for delta in deltas):
            converted.message.additional_kwargs["refusal"] = "refused"
        return converted


def _deltas(chunk: dict[str, Any]) -> list[dict[str, Any]]:  # Any: parsed JSON
    return [choice["delta"] for choice in chunk.get("choices") or () if choice.get("delta")]


class CompatibleChatOpenAI(StreamMendingChatOpenAI):
    """For OpenAI-compatible servers: they know `max_tokens`, and not all its successor."""

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
        return payload


def make_openai(model: str, base_url: str | None, *, idle_seconds: float, connect_seconds: float) -> ChatOpenAI:
    """Return a model on the OpenAI wire with its own HTTP client, so that it can be closed.

    Raises openai.OpenAIError where OpenAI itself is meant and no key is set.
    """
    timeout = openai.Timeout(idle_seconds, connect=connect_seconds)
    settings: dict[str, Any] = {  # keyword arguments of ChatOpenAI
        "model": model,
        "max_retries": 0,
        "timeout": timeout,
        "stream_usage": True,
        "stream_chunk_timeout": 0,  # ours bounds every chunk, the first one too
        "http_async_client": openai.DefaultAsyncHttpxClient(timeout=timeout),
    }
    if base_url is None:
        return StreamMendingChatOpenAI(**settings)
    compatible = {**settings, "base_url": base_url, "use_responses_api": False}
    try:
        return CompatibleChatOpenAI(**compatible)
    except openai.OpenAIError:
        return CompatibleChatOpenAI(**compatible, api_key=SecretStr(PLACEHOLDER_KEY))
