"""A chat model in the process that asks it: it answers at once, with the provider double's text in as many chunks.

What a turn takes beside it is the service's own work alone: no other process, no HTTP, no tokenizer. If it is offered
tools, it calls the first one for each question, and answers with the tool's result. `main` is the command line of the
real service, where every model on the OpenAI wire is this one.
"""

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable

import throughline.main
from throughline.llm import openai_wire

ECHO_CHARACTERS = 60
PIECES = 3
CHARACTERS_PER_TOKEN = 5
"""Near enough to a tokenizer for English questions: a service that compares finds nothing to correct."""


class InstantModel(BaseChatModel):
    """Streams the answer as an OpenAI-compatible server does: a first chunk, the text, the finish reason, the usage."""

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,  # noqa: ANN401  # LangChain's signature
    ) -> ChatResult:
        del stop, run_manager, kwargs
        answer = AIMessage(answer_to(messages), usage_metadata=_usage(messages))
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,  # noqa: ANN401  # LangChain's signature
    ) -> AsyncIterator[ChatGenerationChunk]:
        del stop
        tools: list[dict[str, Any]] = kwargs.get("tools", [])
        calls = bool(tools) and isinstance(messages[-1], HumanMessage)
        for message in [call_of(tools[0], messages)] if calls else chunks_for(messages):
            chunk = ChatGenerationChunk(message=message)
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | Any],  # LangChain's signature
        *,
        tool_choice: str | None = None,
        **kwargs: Any,  # noqa: ANN401  # LangChain's signature
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model with tools that it may call."""
        del tool_choice, kwargs
        return self.bind(tools=list(tools))


def call_of(tool: dict[str, Any], messages: Sequence[BaseMessage]) -> AIMessageChunk:
    """Return a call of a tool without arguments, as one chunk."""
    call = tool_call_chunk(name=tool["function"]["name"], args="{}", id=f"call_{uuid.uuid4().hex}", index=0)
    return AIMessageChunk(
        content="",
        tool_call_chunks=[call],
        response_metadata={"finish_reason": "tool_calls"},
        usage_metadata=_usage(messages),
    )


def answer_to(messages: Sequence[BaseMessage]) -> str:
    """Return an answer that shows which message it answers and how many it was shown."""
    return f"Answer {len(messages)} to: {messages[-1].text[:ECHO_CHARACTERS]}"


def chunks_for(messages: Sequence[BaseMessage]) -> list[AIMessageChunk]:
    """Return the answer in chunks."""
    text = answer_to(messages)
    size = -(-len(text) // PIECES)
    return [
        AIMessageChunk(content=""),
        *(AIMessageChunk(content=text[start : start + size]) for start in range(0, len(text), size)),
        AIMessageChunk(content="", response_metadata={"finish_reason": "stop"}),
        AIMessageChunk(content="", usage_metadata=_usage(messages)),
    ]


def _usage(messages: Sequence[BaseMessage]) -> UsageMetadata:
    asked = sum(len(message.text) for message in messages) // CHARACTERS_PER_TOKEN + 1
    answered = len(answer_to(messages)) // CHARACTERS_PER_TOKEN + 1
    return UsageMetadata(input_tokens=asked, output_tokens=answered, total_tokens=asked + answered)


def main() -> None:
    """Run the command line of the service with an instant model."""

    def make_instant(*asked: object, **more: object) -> BaseChatModel:
        del asked, more
        return InstantModel()

    setattr(openai_wire, "make_openai", make_instant)  # noqa: B010  # the service has no setting for it, on purpose
    throughline.main.main()
