"""The real service with a tracer in it: `python -m chaos.worker_under_trace serve|worker …`, as `throughline`.

Every SQL statement of the process passes one place, the driver's protocol: those of the pool with their BEGIN and
COMMIT, LISTEN and NOTIFY. SQLAlchemy's events would see the pool's only. Models and
tools are traced where the service puts its parts together. A statement added later is so covered by itself.
"""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

import asyncpg.protocol  # type: ignore[import-untyped]  # ships no types

import throughline.assembly.runtime
import throughline.main
from chaos.points import label_of
from chaos.trace import Tracer
from throughline.context.summaries.summary_prompt import SUMMARISER_SYSTEM_PROMPT
from throughline.domain.message import ToolCall
from throughline.domain.model_window import ModelWindow
from throughline.domain.prompt import AnswerComplete, ModelEvent, ModelParameters, ModelRequest
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.llm.registry import ModelRegistry
from throughline.ports.models import ChatModel, FormatSupport
from throughline.tools.toolbox import ToolBox

FOLDER = "CHAOS_FOLDER"
"""The environment variable that names the folder of the orders and the trace. Nothing else reads it."""


class Prepared(Protocol):
    """What is read of asyncpg's prepared statements, which have no types."""

    query: str


def main() -> None:
    """Run the command line of the service, traced."""
    tracer = Tracer(Path(os.environ[FOLDER]))
    _trace_statements(tracer)
    _trace_calls(tracer)
    signal.signal(signal.SIGUSR1, lambda _number, _frame: tracer.obey())
    throughline.main.main()


def _trace_statements(tracer: Tracer) -> None:
    class TracedProtocol(asyncpg.protocol.Protocol):  # type: ignore[misc]  # asyncpg ships no types
        """Passes a place with each statement. The driver looks the class up when it connects."""

        async def query(self, query: str, *rest: object, **named: object) -> object:
            async with tracer.passing(label_of(query)):
                return await super().query(query, *rest, **named)

        async def bind_execute(self, state: Prepared, *rest: object, **named: object) -> object:
            async with tracer.passing(label_of(state.query)):
                return await super().bind_execute(state, *rest, **named)

        async def bind_execute_many(self, state: Prepared, *rest: object, **named: object) -> object:
            async with tracer.passing(label_of(state.query)):
                return await super().bind_execute_many(state, *rest, **named)

    asyncpg.protocol.Protocol = TracedProtocol


def _trace_calls(tracer: Tracer) -> None:
    class TracedModels(ModelRegistry):
        """Hands out models whose calls are places."""

        def get(self, model: str, base_url: str | None = None, api_key_env: str | None = None) -> ChatModel:
            return _TracedModel(super().get(model, base_url, api_key_env), tracer)

    class TracedTools(ToolBox):
        """A tool call is a place."""

        async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
            async with tracer.passing(f"tool {call.name}"):
                return await super().run(call, context)

    throughline.assembly.runtime.ModelRegistry = TracedModels  # type: ignore[attr-defined]  # by this name open_runtime makes them
    throughline.assembly.runtime.ToolBox = TracedTools  # type: ignore[attr-defined]  # the same


class _TracedModel:
    """A model each of whose calls is a place, and each event of its answers another."""

    def __init__(self, model: ChatModel, tracer: Tracer) -> None:
        self._model = model
        self._tracer = tracer

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def calibration_key(self) -> str:
        return self._model.calibration_key

    @property
    def address(self) -> str:
        return self._model.address

    @property
    def context_limit(self) -> int:
        return self._model.context_limit

    @property
    def has_known_tokenizer(self) -> bool:
        return self._model.has_known_tokenizer

    @property
    def is_priced(self) -> bool:
        return self._model.is_priced

    @property
    def window(self) -> ModelWindow:
        return self._model.window

    @property
    def format_support(self) -> FormatSupport:
        return self._model.format_support

    async def ask_window(self) -> None:
        await self._model.ask_window()

    def check_parameters(self, parameters: ModelParameters) -> None:
        """Raise SettingInvalid if the model's provider does not take one of the parameters."""
        self._model.check_parameters(parameters)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        kind = "summariser" if request.prompt.system.startswith(SUMMARISER_SYSTEM_PROMPT[:60]) else "model"
        times = self._tracer.come_to(f"{kind} call")
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                if isinstance(event, AnswerComplete):
                    self._tracer.leave(f"{kind} call", times)
                else:
                    self._tracer.come_to(f"{kind} text")
                yield event


if __name__ == "__main__":
    main()
