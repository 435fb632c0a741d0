"""Chat completions on the OpenAI wire format, with corrections where LangChain's stream parsing loses information.

It also reads events as plain JSON. Imported only if such a model is used, because the provider package is optional.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import openai
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI
from openai.resources.chat.completions import AsyncCompletionsWithRawResponse
from pydantic import SecretStr

from throughline.context.identity_cache import IdentityCache
from throughline.llm.assemble_answer import token_counts
from throughline.llm.translate_messages import (
    DETAILS,
    MEMBER,
    PartKind,
    argument_texts,
    call_extras,
    details_in,
    extras_in,
    moved_to_text,
    reasoning_in,
    returned_parts,
    wants_content,
    wire_members,
)

_written: IdentityCache[BaseMessage, dict[str, Any]] = IdentityCache()  # Any: parsed JSON
"""Cache of messages in the wire format."""

IDLE_CONNECTION_SECONDS = 30.0
"""Seconds for which an idle connection is kept for the next call.

httpx keeps it for 5, which is shorter than many tool calls or a user's reading. Servers and proxies mostly close it
after 60 or more; a closed one is not reused.
"""


class JsonCompletions:
    """The SDK's chat completions without its typed models: JSON is sent and returned unchanged.

    LangChain converts prompts and answer events to plain JSON. In between, the SDK would search every message for
    values to encode, and build a model of every event, which together is most of a call's CPU time.
    """

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        """Use the client's connections, key and errors."""
        self._client = client

    @property
    def with_raw_response(self) -> AsyncCompletionsWithRawResponse:
        """The SDK's own completions, for calls that LangChain does not stream or whose headers it reads."""
        return self._client.chat.completions.with_raw_response

    async def create(
        self,
        *,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, object] | None = None,
        **payload: object,
    ) -> openai.AsyncStream[object]:
        """Request a stream with the API key for models; without `security` the SDK may send an admin key.

        `extra_body` are further members of the body, which also replace members of the payload.
        """
        return await self._client.post(
            "/chat/completions",
            body={**payload, **(extra_body or {})},
            cast_to=object,
            options={"security": {"bearer_auth": True}, "headers": dict(extra_headers or {})},
            stream=True,
            stream_cls=openai.AsyncStream[object],
        )


class TolerantChatOpenAI(ChatOpenAI):
    """ChatOpenAI that keeps reasoning, refusals and tool calls without `index`, and tolerates invalid usage.

    A message is converted to the wire format once: `to_langchain` may return the same message object again.

    `return_reasoning`: the server wants `reasoning_content` with every step that calls tools; a call may say otherwise.
    """

    return_reasoning: bool = False

    def _get_request_payload(
        self,
        input_: LanguageModelInput,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,  # noqa: ANN401  # LangChain's signature
    ) -> dict[str, Any]:
        returns_reasoning = kwargs.pop("return_reasoning", self.return_reasoning)
        messages = self._convert_input(input_).to_messages()
        new = [message for message in messages if _written.find(message) is None]
        payload: dict[str, Any] = super()._get_request_payload(new, stop=stop, **kwargs)
        if "messages" not in payload:  # a model of OpenAI's newer wire format, which encodes messages differently
            return moved_to_text(super()._get_request_payload(messages, stop=stop, **kwargs))
        for message, written in zip(new, payload["messages"], strict=True):
            _written.keep(message, _with_parts(_with_arguments(written, argument_texts(message)), message))
        found = [_written.find(message) for message in messages]
        return {**payload, "messages": [*map(_with_content, found)] if returns_reasoning else found}

    def _convert_chunk_to_generation_chunk(
        self,
        chunk: dict[str, Any],  # LangChain's signature: the parsed JSON of one event
        default_chunk_class: type,
        base_generation_info: dict[str, Any] | None,  # LangChain's signature
    ) -> ChatGenerationChunk | None:
        chunk["usage"] = token_counts(chunk.get("usage"))  # LangChain raises for a value that is no number
        deltas = _deltas(chunk)
        for delta in deltas:
            for call in delta.get("tool_calls") or ():
                call.setdefault("index", None)
                call.setdefault("function", None)  # otherwise LangChain would skip all calls of the event
        converted = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        if converted is None:
            return None
        converted.message.additional_kwargs.update(_members_of(deltas))
        return converted


def _with_arguments(written: dict[str, Any], texts: Sequence[str]) -> dict[str, Any]:  # Any: parsed JSON
    """Replace LangChain's rewritten arguments by the model's own text, which may be a third shorter."""
    for call, text in zip(written.get("tool_calls") or (), texts, strict=False):
        call["function"]["arguments"] = text
    return written


def _members_of(deltas: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, object]]:  # Any: parsed JSON
    """Yield what LangChain does not read of the deltas, for `additional_kwargs`."""
    if any(delta.get("refusal") for delta in deltas):
        yield "refusal", "refused"
    if reasoning := "".join(map(reasoning_in, deltas)):
        yield MEMBER, reasoning
    if details := [part for delta in deltas for part in details_in(delta)]:
        yield DETAILS, details
    if extras := {call_id: extra for delta in deltas for call_id, extra in extras_in(delta).items()}:
        yield PartKind.EXTRA.value, extras


def _with_parts(written: dict[str, Any], message: BaseMessage) -> dict[str, Any]:  # Any: parsed JSON
    """Add the parts of the message's reasoning that its server wants back."""
    parts = returned_parts(message)
    extras = call_extras(parts)
    for number, call in enumerate(written.get("tool_calls") or ()):
        if number in extras:
            call["extra_content"] = extras[number]
    return {**written, **wire_members(parts)}


def _with_content(written: dict[str, Any] | None) -> dict[str, Any]:  # Any: parsed JSON
    """Return a step that calls tools with `reasoning_content`, empty if its reasoning is not known any more."""
    assert written is not None
    return {MEMBER: "", **written} if written.get("tool_calls") else written


def _deltas(chunk: dict[str, Any]) -> list[dict[str, Any]]:  # Any: parsed JSON
    """Return the deltas of one event; a choice without one gets the null that LangChain expects."""
    choices = chunk.get("choices") or ()
    return [delta for choice in choices if (delta := choice.setdefault("delta", None))]


class CompatibleChatOpenAI(TolerantChatOpenAI):
    """Chat model for OpenAI-compatible servers, some of which know only `max_tokens` and not its successor.

    If tools may not be called, they are left out, because some servers (Ollama) ignore `tool_choice`.
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
    """Return a model on the OpenAI wire format with an HTTP client of its own, so that it can be closed.

    Without `api_key` the environment's key is used. Raises openai.OpenAIError if there is none.
    """
    timeout = openai.Timeout(idle_seconds, connect=connect_seconds)
    limits = copy(openai.DEFAULT_CONNECTION_LIMITS)
    limits.keepalive_expiry = IDLE_CONNECTION_SECONDS
    settings: dict[str, Any] = {  # keyword arguments of ChatOpenAI
        "model": model,
        "max_retries": 0,
        "timeout": timeout,
        "stream_usage": True,
        "stream_chunk_timeout": 0,  # our own timeout covers every chunk, including the first
        "http_async_client": openai.DefaultAsyncHttpxClient(timeout=timeout, limits=limits),
    }
    if api_key is not None:
        settings["api_key"] = SecretStr(api_key)
    made = _construct(settings, base_url)
    made.async_client = JsonCompletions(made.root_async_client)
    return made


def _construct(settings: dict[str, Any], base_url: str | None) -> ChatOpenAI:  # Any: keyword arguments of ChatOpenAI
    if base_url is None:
        return TolerantChatOpenAI(**settings)
    returns = wants_content(base_url)
    return CompatibleChatOpenAI(**settings, base_url=base_url, use_responses_api=False, return_reasoning=returns)
