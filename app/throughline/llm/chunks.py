"""Chunks of one answer, read directly from a LangChain model, without storing or tracing them.

LangChain's own `astream` keeps every chunk, merges them at the end on the event loop, and passes prompt and answer to
the tracer that the environment names. Here no merged answer is needed, and no user's text may reach a tracer.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration
from langchain_core.runnables import Runnable, RunnableBinding


def stream_chunks(
    runnable: Runnable[LanguageModelInput, AIMessage],
    messages: list[BaseMessage],
    options: Mapping[str, Any],  # provider keyword arguments
) -> AsyncGenerator[AIMessage]:
    """Return the answer's chunks, or one whole message if the model does not stream.

    `runnable` is a chat model, with or without bound tools and other options.
    """
    bound: Any = runnable  # a binding's `bound` may be anything
    given = dict(options)
    while isinstance(bound, RunnableBinding):
        given = {**bound.kwargs, **given}
        bound = bound.bound
    if not isinstance(bound, BaseChatModel):
        raise TypeError(f"tools made a {type(bound).__name__} of the model, which cannot be streamed from")
    if not bound._should_stream(async_api=True, stream=True, **given):  # noqa: SLF001  # LangChain has no other way to ask
        return _whole(bound, messages, given)
    return _streamed(bound, messages, given)


async def _streamed(
    model: BaseChatModel, messages: list[BaseMessage], options: dict[str, Any]
) -> AsyncGenerator[AIMessage]:
    chunks: Any = model._astream(messages, **options)  # noqa: SLF001  # what a provider's package implements
    async with aclosing(chunks):
        async for chunk in chunks:
            yield _message_of(chunk)


async def _whole(
    model: BaseChatModel, messages: list[BaseMessage], options: dict[str, Any]
) -> AsyncGenerator[AIMessage]:
    result = await model._agenerate(messages, **options)  # noqa: SLF001  # what a provider's package implements
    for generation in result.generations:
        yield _message_of(generation)


def _message_of(generation: ChatGeneration) -> AIMessage:
    """Return the message with the metadata of its generation, mostly the finish reason."""
    message = generation.message
    assert isinstance(message, AIMessage | AIMessageChunk)  # of a chat model's answer
    message.response_metadata = {**(generation.generation_info or {}), **message.response_metadata}
    return message
