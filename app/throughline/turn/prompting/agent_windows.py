"""The windows of all agents: asked of the models' servers at start, logged, and shown by the interfaces.

`ready_agent.py` makes the budget of a turn from the same window.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

import structlog

from throughline.agents.definition import AgentDefinition
from throughline.context.budget import make_budget
from throughline.context.calibration import trusted_window
from throughline.context.measure import count_prompt, count_tool_specs
from throughline.domain.basic_types import Clock
from throughline.domain.errors import ModelInvalidRequest, ThroughlineError
from throughline.domain.message import Role
from throughline.domain.model_window import CheckedCall, CheckedModel, ModelCheck, ModelWindow, ToolUse, WindowOrigin
from throughline.domain.prompt import (
    AnswerComplete,
    ModelRequest,
    Prompt,
    PromptMessage,
    ToolCallPiece,
    ToolSpec,
    Usage,
)
from throughline.ports.models import ChatModel, Models, TokenCounter
from throughline.turn.prompting.ready_agent import PromptDependencies, ReadyAgent, calibration_key

log = structlog.get_logger(__name__)


def configured_window(definition: AgentDefinition, model: ChatModel) -> ModelWindow:
    """Return the window of the agent's file, else the model's."""
    if definition.context.window is not None:
        return ModelWindow(definition.context.window, WindowOrigin.AGENT_FILE)
    return model.window


async def agent_window(dependencies: PromptDependencies, definition: AgentDefinition) -> ModelWindow:
    """Return the window that the agent's next turn uses: a smaller one that a refusal has named comes first."""
    model = dependencies.models.get(definition.model, definition.base_url, definition.api_key_env)
    if definition.context.window is None:
        await model.ask_window()
    counter = dependencies.make_counter(definition.context.token_counter)
    configured = configured_window(definition, model)
    calibration = await dependencies.calibrations.load(calibration_key(model, counter))
    trusted = trusted_window(calibration, configured.tokens)
    return configured if trusted == configured.tokens else ModelWindow(trusted, WindowOrigin.LEARNED)


async def ask_windows(agents: Iterable[AgentDefinition], models: Models) -> None:
    """Ask the servers of all agents' models and summary models at the same time; each model is asked once.

    A model with a window in the agent's file is not asked for that agent.
    """
    asked: dict[int, ChatModel] = {}
    for agent in agents:
        summary = agent.context.summary
        if agent.context.window is None:
            model = models.get(agent.model, agent.base_url, agent.api_key_env)
            asked[id(model)] = model
        if summary.model:
            model = models.get(summary.model, summary.base_url, summary.api_key_env)
            asked[id(model)] = model
    await asyncio.gather(*(model.ask_window() for model in asked.values()))


def log_windows(agents: Sequence[ReadyAgent]) -> None:
    """Log each model with its window once, and warn once of each whose window is assumed."""
    found: dict[tuple[str, str, ModelWindow], list[str]] = {}
    for agent in agents:
        window = configured_window(agent.definition, agent.model)
        found.setdefault((agent.model.name, agent.model.address, window), []).append(agent.definition.name)
    for (model, address, window), names in sorted(found.items(), key=lambda item: item[1]):
        fields = {
            "model": model,
            "address": address,
            "window": window.tokens,
            "window_from": window.origin.value,
            "server": window.server,
            "agents": sorted(names),
        }
        if window.is_assumed:
            log.warning("context window unknown", **fields, hint=_hint(window))
        elif window.neighbour:
            log.warning("context window guessed", **fields, hint=guess_remark(window))
        else:
            log.info("context window found", **fields)


def guess_remark(window: ModelWindow) -> str:
    """Return what an operator should check if the model's name is only like one of the table."""
    return (
        f"the model's name is not known, so it gets the window of {window.neighbour}, {window.tokens:,} tokens: check "
        "its spelling, or set context.window in the agent file"
    )


def _hint(window: ModelWindow) -> str:
    """Return why the window is assumed and which setting ends that."""
    reason = "neither the model's server nor the table of well-known models names one"
    if window.server:
        reason = f"{window.server} has not loaded the model and does not say with which window it would"
    return f"{reason}, so {window.tokens:,} tokens are assumed: set context.window in the agent file"


# One real call of an agent's model, made for the command `throughline models check`.
#
# No session and no database is involved. The tool that the model is asked to call is never run.

MOST_OUTPUT_TOKENS = 2048
"""Most tokens of the answer: enough for a model that thinks before it writes."""

SYSTEM = "You help to check a connection. Do exactly what you are asked, briefly."
ASKED = (
    "The harbour office keeps a list of every ship that comes in after dark: its name, its flag, the cargo, and the "
    "hour at which the pilot went on board. On Tuesday, 14 January, three ships were written down, with 1,250, 310 and "
    "47 tonnes of grain. First write one sentence of about twenty words that says how much grain came in that night. "
    "Then call the tool note_result once, with the number of tonnes."
)
TOOL = ToolSpec(
    "note_result",
    "Take note of a result. The call has no effect.",
    {"type": "object", "properties": {"tonnes": {"type": "integer"}}, "required": ["tonnes"]},
)
NO_CALL = CheckedCall(0, Usage(), None, 0.0, 0, 0, "", ToolUse.NOT_CALLED)


async def check_model(model: ChatModel, counter: TokenCounter, definition: AgentDefinition, clock: Clock) -> ModelCheck:
    """Ask the model's server for the window, call the model once, and return what was measured.

    If the call fails, the result holds the error's text. If the request with a tool is called invalid, the model is
    called again without one: the tool may be the reason.
    """
    await model.ask_window()
    checked = CheckedModel(
        agent=definition.name,
        model=model.name,
        address=model.address,
        window=configured_window(definition, model),
        model_window=model.window,
        counter=counter.name,
        has_tools=bool(definition.tools),
        summary_seconds=None if definition.context.summary.model else definition.context.summary.timeout_seconds,
    )
    reserve = make_budget(definition.context, checked.window.tokens).reserve_tokens
    request = ModelRequest(
        prompt=Prompt(SYSTEM, (PromptMessage(Role.USER, ASKED),)),
        tools=(TOOL,),
        max_output_tokens=min(reserve, MOST_OUTPUT_TOKENS),
        parameters=definition.parameters,
    )
    try:
        return ModelCheck(checked, await _call(model, counter, request, clock))
    except ModelInvalidRequest as refusal:
        return await _check_without_tools(model, counter, replace(request, tools=()), clock, (checked, refusal))
    except ThroughlineError as error:
        return ModelCheck(checked, None, error.detail)


async def _check_without_tools(
    model: ChatModel,
    counter: TokenCounter,
    request: ModelRequest,
    clock: Clock,
    refused: tuple[CheckedModel, ModelInvalidRequest],
) -> ModelCheck:
    checked, refusal = refused
    try:
        call = await _call(model, counter, request, clock)
    except ThroughlineError as error:
        return ModelCheck(checked, None, error.detail)
    return ModelCheck(checked, replace(call, tools=ToolUse.REFUSED, refusal=refusal.detail))


async def _call(model: ChatModel, counter: TokenCounter, request: ModelRequest, clock: Clock) -> CheckedCall:
    counted = count_prompt(request.prompt, count_tool_specs(request.tools, counter.count), counter.count)
    began, times, call = clock.monotonic(), list[float](), replace(NO_CALL, counted_tokens=counted)
    async for event in model.stream(request):
        if isinstance(event, ToolCallPiece):
            continue
        if not isinstance(event, AnswerComplete):
            times.append(clock.monotonic())
            continue
        call = replace(
            call,
            usage=event.usage,
            text_tokens=counter.count(event.text),
            finish_reason=event.finish_reason,
            tools=ToolUse.CALLED if event.tool_calls else ToolUse.NOT_CALLED,
        )
    if not times:
        return call
    return replace(call, first_text_seconds=times[0] - began, text_seconds=times[-1] - times[0], pieces=len(times))
