"""Adapter of a LangChain chat model to the turn's ChatModel port: converts requests, events and errors."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration
from langchain_core.runnables import Runnable, RunnableBinding

from throughline.context.view.groups import Group, group_messages
from throughline.domain.errors import (
    ModelInvalidRequest,
    ModelTimeout,
    ModelUnavailable,
    SettingInvalid,
    ThroughlineError,
)
from throughline.domain.message import Block, Content, ImageBlock, Role, TextBlock, text_of
from throughline.domain.model_window import ModelWindow
from throughline.domain.prompt import (
    ANY_TOOL,
    ModelEvent,
    ModelParameters,
    ModelRequest,
    Prompt,
    PromptMessage,
    Usage,
    strings_in,
)
from throughline.llm.assemble_answer import AnswerAssembly, checked_usage
from throughline.llm.bounded_http import too_much
from throughline.llm.classify_error import FailedCall, classify
from throughline.llm.context_windows import KnownWindow
from throughline.llm.provider_error import Sent, raised_as, secrets_of
from throughline.llm.providers import Provider
from throughline.llm.translate_messages import (
    NO_PARTS,
    PartKind,
    to_langchain,
    to_tools,
    wire_format,
    with_cache_markers,
)
from throughline.ports.models import FormatSupport

CHARACTERS_PER_TOKEN = 4
"""Characters assumed per token; the low estimate is used only to judge whether a refused prompt was nearly full."""

MOST_CHUNKS = 200_000
"""Most chunks of one answer. The longest answers have 128,000 tokens; some providers send each in its own chunk."""

TOOLS_PARAMETER = "parallel_tool_calls"
"""The parameter that providers take only together with tools."""

CHUNKS_AT_ONCE = 16
"""Number of chunks after which the event loop runs: from a fast provider, the next chunk is always available."""


def _unknown_cost(_usage: Usage) -> None:
    """Return None: the model has no known price."""


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """Facts about a model that its LangChain class does not provide, beside those of its provider.

    - `idle_timeout_seconds`: the time without a chunk after which a call fails.
    - `has_known_tokenizer`: tiktoken is the model's own tokenizer, or nearly so.
    - `returned_parts`: the parts of reasoning that are sent back with the steps of a run.
    - `base_url`: the configured address of the calls, with credentials if any; None for the provider's own. `address`
      is that of the calls as operators are shown it; '' for the provider's own.
    - `max_chunks`: the most chunks of an answer, empty ones included.
    - `cost`: returns the price of a call's usage in US dollars, None if it is unknown.
    """

    name: str
    provider: Provider
    idle_timeout_seconds: float
    has_known_tokenizer: bool = False
    returned_parts: frozenset[PartKind] = NO_PARTS
    base_url: str | None = None
    address: str = ""
    max_chunks: int = MOST_CHUNKS
    cost: Callable[[Usage], Decimal | None] = _unknown_cost


class LangChainChatModel:
    """The ChatModel port implemented with any LangChain chat model that streams."""

    def __init__(self, model: BaseChatModel, traits: ModelTraits, known_window: KnownWindow) -> None:
        """Wrap `model`; its own retries must be off, because only the turn retries."""
        self.name, self.address, self.has_known_tokenizer = traits.name, traits.address, traits.has_known_tokenizer
        self.calibration_key = f"{traits.name}@{traits.base_url}" if traits.base_url else traits.name
        self._model = model
        self._known_window = known_window
        self._traits = traits
        self._provider = traits.provider

    @property
    def context_limit(self) -> int:
        return self.window.tokens

    @property
    def window(self) -> ModelWindow:
        return self._known_window.window

    async def ask_window(self) -> None:
        await self._known_window.refresh()

    @property
    def is_priced(self) -> bool:
        return self._traits.cost(Usage(input_tokens=1, output_tokens=1)) is not None

    @property
    def format_support(self) -> FormatSupport:
        return FormatSupport.SCHEMA if self._provider.takes_response_format else FormatSupport.INSTRUCTION

    def check_parameters(self, parameters: ModelParameters) -> None:
        for name, _ in parameters.given():
            if name not in self._provider.parameters:
                taken = ", ".join(sorted(self._provider.parameters)) or "none from here"
                raise SettingInvalid(f"model {self.name!r} takes no {name}: remove it. It takes: {taken}")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        assembly = AnswerAssembly(
            adds_usage=self._provider.adds_usage,
            max_call_characters=request.max_answer_bytes,  # a character has at least one byte; the caller counts bytes
            taken_ids={call.id for message in request.prompt.messages for call in message.tool_calls},
            returned=self._returned_parts(request.parameters),
            model_key=self.calibration_key,
        )
        async with aclosing(self._chunks(request)) as chunks:
            async for chunk in chunks:
                for event in assembly.add(chunk):
                    yield event
        for event in assembly.flush():
            yield event
        paid = replace(assembly.usage, cost_usd=self._traits.cost(assembly.usage))
        try:
            answer = assembly.finish(self.name)
        except ThroughlineError as error:
            error.usage = None if paid == Usage() else paid
            raise
        yield replace(answer, usage=checked_usage(paid, request.prompt, self.name))

    def _returned_parts(self, parameters: ModelParameters) -> frozenset[PartKind]:
        """Return the parts of reasoning that are sent back; the parameter decides for reasoning as text."""
        kinds = self._traits.returned_parts
        if parameters.return_reasoning is None:
            return kinds
        return kinds | {PartKind.CONTENT} if parameters.return_reasoning else kinds - {PartKind.CONTENT}

    async def _chunks(self, request: ModelRequest) -> AsyncGenerator[AIMessageChunk]:
        source, count = self._open(request), 0
        async with aclosing(source):
            while (chunk := await self._next(source, request)) is not None:
                count += 1
                if count > self._traits.max_chunks:
                    raise self._classified(too_much(self._traits.max_chunks, "chunks"), request)
                if count % CHUNKS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                yield chunk
        if not count:
            # LM Studio answers a wrong path so, with status 200.
            hint = ", and check base_url, which usually ends with /v1" if self._traits.base_url else ""
            raise ModelUnavailable(f"{self.name}: the provider sent an answer that cannot be read; try again{hint}")

    def _open(self, request: ModelRequest) -> AsyncGenerator[AIMessage]:
        parameters = request.parameters
        if request.response_format is not None and self._provider.takes_response_format:
            parameters = replace(parameters, body={**parameters.body, **wire_format(request.response_format)})
        options = {self._provider.output_parameter: request.max_output_tokens, **self._options(parameters)}
        try:
            messages = to_langchain(self._sendable(request.prompt), may_share=self._provider.may_share_messages)
            if self._provider.takes_cache_markers:
                messages = with_cache_markers(messages)
            return stream_chunks(self._with_tools(request), messages, options)
        except (TypeError, ValueError, KeyError) as error:
            raise ModelInvalidRequest(
                f"{self.name}: the messages or tools cannot be put into this provider's form ({type(error).__name__})"
            ) from error

    def _options(self, parameters: ModelParameters) -> dict[str, Any]:  # provider keyword arguments
        """Return the parameters under their names in the LangChain class, without the one that goes with the tools."""
        names = self._provider.parameters
        options = {names[name]: value for name, value in parameters.given() if name != TOOLS_PARAMETER}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}

    def _sendable(self, prompt: Prompt) -> Prompt:
        if not self._provider.has_openai_limits:
            return prompt
        return replace(prompt, messages=within_openai_limits(prompt.messages))

    def _with_tools(self, request: ModelRequest) -> Runnable[LanguageModelInput, AIMessage]:
        tools = to_tools(request.tools)
        if tools and request.may_call_tools:
            parallel = request.parameters.parallel_tool_calls
            options: dict[str, Any] = {} if parallel is None else {TOOLS_PARAMETER: parallel}
            if request.tool_choice is not None:
                options["tool_choice"] = "any" if request.tool_choice == ANY_TOOL else request.tool_choice
            return self._model.bind_tools(tools, **options)
        forbidden = self._provider.forbidden_tools
        if tools and forbidden:
            choice = forbidden if isinstance(forbidden, str) else dict(forbidden)
            return self._model.bind_tools(tools).bind(tool_choice=choice)
        return self._model

    async def _next(self, source: AsyncGenerator[AIMessage], request: ModelRequest) -> AIMessageChunk | None:
        """Return the next chunk, None at the end; errors of a provider's package are classified here."""
        seconds = self._traits.idle_timeout_seconds
        with raised_as(partial(self._classified, request=request)):
            try:
                async with asyncio.timeout(seconds):
                    chunk = await anext(source, None)
            except TimeoutError as error:
                detail = f"{self.name}: the provider sent nothing for {seconds:g} seconds; try again"
                raise ModelTimeout(detail) from error
        # A model that does not stream yields one whole message.
        return chunk if chunk is None or isinstance(chunk, AIMessageChunk) else _as_chunk(chunk)

    def _classified(self, error: Exception, request: ModelRequest) -> ThroughlineError:
        shown = sum(len(text_of(message.content)) for message in request.prompt.messages)
        tokens = (shown + len(request.prompt.system)) // CHARACTERS_PER_TOKEN
        secrets = (*secrets_of(self._model), *_secrets_in(self._traits.base_url), *strings_in(request.parameters))
        sent = Sent(_texts_of(request), secrets)
        return classify(error, FailedCall(self.name, tokens, self.context_limit, sent))


def _secrets_in(base_url: str | None) -> tuple[str, ...]:
    """Return the password in an address, and the form in which it is sent."""
    parts = urlsplit(base_url or "")
    if not parts.password:
        return ()
    return parts.password, b64encode(f"{parts.username or ''}:{parts.password}".encode()).decode()


def _texts_of(request: ModelRequest) -> tuple[str, ...]:
    """Return all texts of the request that an error message may repeat."""
    messages = request.prompt.messages
    said = (text_of(message.content) for message in messages)
    blocks = (block for message in messages if not isinstance(message.content, str) for block in message.content)
    images = (block.url for block in blocks if isinstance(block, ImageBlock))
    arguments = (call.arguments for message in messages for call in message.tool_calls)
    tools = (text for tool in request.tools for text in (tool.description, json.dumps(dict(tool.parameters))))
    schema = () if request.response_format is None else (json.dumps(dict(request.response_format.schema)),)
    return (request.prompt.system, *said, *images, *arguments, *tools, *schema)


def _as_chunk(message: AIMessage) -> AIMessageChunk:
    fields = message.model_dump(exclude={"type", "tool_calls", "invalid_tool_calls"})
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    pieces = [
        {"name": call["name"], "args": _arguments(call["args"]), "id": call["id"], "index": index}
        for index, call in enumerate(calls)
    ]
    return AIMessageChunk(**fields, tool_call_chunks=pieces)


def _arguments(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)


def stream_chunks(
    runnable: Runnable[LanguageModelInput, AIMessage],
    messages: list[BaseMessage],
    options: Mapping[str, Any],  # provider keyword arguments
) -> AsyncGenerator[AIMessage]:
    """Return the answer's chunks, or one whole message if the model does not stream.

    LangChain's own `astream` keeps every chunk, merges them at the end on the event loop, and passes prompt and answer
    to the tracer that the environment names. No user's text may reach a tracer.

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


# Messages that were imported, or stored from another provider, may have images in tool results, or more calls. OpenAI's
# chat completions would refuse them in every turn of the session.

MOST_CALLS = 128
"""Most tool calls of one assistant message; OpenAI refuses more."""

IMAGES_FOLLOW = "[The images of this result follow the results.]"


def within_openai_limits(messages: tuple[PromptMessage, ...]) -> tuple[PromptMessage, ...]:
    """Return the messages with images of tool results in a user message after them, and long steps split into several.

    Each call must be followed by its result, as in all our prompts. If nothing needs to change, the same messages are
    returned. The few tokens of inserted texts are not counted.
    """
    if not any(map(_is_beyond, messages)):
        return messages
    return tuple(chain.from_iterable(map(_in_steps, group_messages(messages))))


def _is_beyond(message: PromptMessage) -> bool:
    return len(message.tool_calls) > MOST_CALLS or (message.role is Role.TOOL and bool(_images(message.content)))


def _in_steps(group: Group[PromptMessage]) -> Iterator[PromptMessage]:
    """Yield the group's messages in steps of at most `MOST_CALLS` calls, each followed by its results and images."""
    head, calls = group.head, group.head.tool_calls
    if len(calls) <= MOST_CALLS:
        yield head
        yield from _with_images_after(group.messages[1:])
        return
    for start in range(0, len(calls), MOST_CALLS):
        step = slice(start, start + MOST_CALLS)
        is_first = start == 0
        content, reasoning = (head.content, head.reasoning) if is_first else ("", None)
        yield replace(head, content=content, tool_calls=calls[step], reasoning=reasoning)
        yield from _with_images_after([result for result in group.results[step] if result is not None])


def _with_images_after(results: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    images: list[Block] = []
    for result in results:
        found = _images(result.content)
        if not found:
            yield result
            continue
        yield replace(result, content=(*_texts(result.content), TextBlock(IMAGES_FOLLOW)))
        images.extend((TextBlock(f"[From the result of {result.name or 'tool'}:]"), *found))
    if images:
        yield PromptMessage(Role.USER, tuple(images))


def _images(content: Content) -> tuple[ImageBlock, ...]:
    return () if isinstance(content, str) else tuple(block for block in content if isinstance(block, ImageBlock))


def _texts(content: Content) -> tuple[TextBlock, ...]:
    return () if isinstance(content, str) else tuple(block for block in content if isinstance(block, TextBlock))
