"""The windows of all agents: asked of the models' servers at start, logged, and shown by the interfaces.

`ready_agent.py` makes the budget of a turn from the same window.
"""

import asyncio
from collections.abc import Iterable, Sequence

import structlog

from throughline.agents.definition import AgentDefinition
from throughline.context.calibration import trusted_window
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.ports.models import ChatModel, Models
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
