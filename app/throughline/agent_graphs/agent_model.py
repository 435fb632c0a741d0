"""The agent's model for its graph: a LangChain chat model whose calls are made by the running turn.

The turn fits each prompt to the window, shows readers the answer, and counts what it costs. Fallback models, retries,
limits and overrides of the request hold as for other agents.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool

from throughline.agent_graphs.checkpoints import RUNNING, GraphProgress
from throughline.agent_graphs.langchain_messages import from_langchain, system_text, to_langchain
from throughline.domain.agent_graph import GraphMessage, GraphModelAnswer, GraphModelCall
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import ANY_TOOL, NO_TOOLS, PromptMessage, ToolSpec

SYSTEM_ID = "throughline:system"
"""The id of the system message with which a graph begins: the turn itself puts its text into each prompt."""


class AgentModel(BaseChatModel):
    """The model of the agent whose turn runs."""

    @property
    def _llm_type(self) -> str:
        return "throughline"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,  # noqa: ANN401  # LangChain's signature
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model with tools that it may call. `tool_choice` is "auto", "any", "none" or a tool's name."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=tool_choice, **kwargs)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002  # LangChain's signature
        **kwargs: Any,  # noqa: ANN401  # LangChain's signature
    ) -> ChatResult:
        answer = await _running().host.call_model(_call(messages, stop, kwargs))
        return ChatResult(generations=[ChatGeneration(message=_message(answer))])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002  # LangChain's signature
        **kwargs: Any,  # noqa: ANN401  # LangChain's signature
    ) -> ChatResult:
        """Make the call on the turn's event loop, while the node's thread waits for it."""
        loop = _running().loop
        if _is_in_loop():
            raise RuntimeError("an async node must call the model with `ainvoke` or `astream`")
        return asyncio.run_coroutine_threadsafe(self._agenerate(messages, stop, **kwargs), loop).result()


def _running() -> GraphProgress:
    found = RUNNING.get(None)
    if found is None:
        raise RuntimeError("the model of an agent's graph answers only while the service runs a turn of that agent")
    return found


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _call(messages: Sequence[BaseMessage], stop: list[str] | None, given: dict[str, Any]) -> GraphModelCall:
    found = tuple(
        GraphMessage(message.id or "", read) for message in messages if (read := from_langchain(message)) is not None
    )
    tools = tuple(_spec(tool["function"]) for tool in given.get("tools") or ())
    choice = _choice(given.get("tool_choice"), tools)
    return GraphModelCall(found, system_text(messages, SYSTEM_ID), tools, choice, tuple(stop or ()))


def _spec(function: dict[str, Any]) -> ToolSpec:
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return ToolSpec(function["name"], function.get("description") or "", parameters, function.get("strict"))


def _choice(given: object, tools: Sequence[ToolSpec]) -> str | None:
    """Return LangChain's tool choice as that of a ModelRequest."""
    match given:
        case "any" | "required" | True:
            return ANY_TOOL if tools else None
        case "none" | False:
            return NO_TOOLS
        case {"function": {"name": str(name)}} | {"name": str(name)}:
            return name
        case str() if given != "auto":
            return given
        case _:
            return None


def _message(answer: GraphModelAnswer) -> AIMessage:
    step = answer.step
    made = to_langchain(GraphMessage(answer.id, PromptMessage(Role.ASSISTANT, step.text, step.tool_calls)))
    assert isinstance(made, AIMessage)
    made.response_metadata = {"finish_reason": step.finish_reason, "model_name": step.model}
    sent, received = step.usage.input_tokens, step.usage.output_tokens
    if sent is not None and received is not None:
        made.usage_metadata = UsageMetadata(input_tokens=sent, output_tokens=received, total_tokens=sent + received)
    return made


def make_tool(spec: ToolSpec) -> BaseTool:
    """Return one of the service's tools as a tool of the graph."""

    async def run(**arguments: object) -> str:
        text = json.dumps(arguments, ensure_ascii=False)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        outcome = await _running().host.call_tool(ToolCall(digest, spec.name, text))
        if outcome.is_error:
            raise ToolException(outcome.text)
        return outcome.text

    return StructuredTool(
        name=spec.name,
        description=spec.description or spec.name,
        args_schema=dict(spec.parameters),
        coroutine=run,
        handle_tool_error=True,
    )
