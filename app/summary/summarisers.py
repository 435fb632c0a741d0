"""Which models may write a summary for an agent, in the order they are asked: the summary model, then its own."""

import structlog

from app.context.budget import summary_limit
from app.context.calibration import factor, trusted_window, unscale
from app.domain.errors import SettingInvalid
from app.ports.models import ChatModel
from app.prompting.ready_agent import ReadyAgent
from app.summary.parts import SummaryParts
from app.summary.summarize import Summariser

log = structlog.get_logger(__name__)


async def find_summarisers(parts: SummaryParts, agent: ReadyAgent, instructions: str = "") -> tuple[Summariser, ...]:
    """Return the agent's summary model (the setting's, where the agent names none), then the agent's own model.

    A summary model that cannot be had any more does not stop summaries: the agent's own writes them.
    """
    policy = agent.definition.context.summary
    wishes = "\n".join(part for part in (policy.instructions, instructions) if part)
    models = [model for model in (_named(parts, agent), agent.model) if model is not None]
    if len(models) > 1 and models[0].calibration_key == agent.model.calibration_key:
        models.pop()
    return tuple([await _summariser(parts, agent, model, wishes) for model in models])


def summary_tokens(agent: ReadyAgent) -> int:
    """Return how many tokens, by our count, the agent's summary may have."""
    limit = summary_limit(agent.definition.context.summary, agent.budget)
    return max(unscale(limit, agent.factor), 1)


def _named(parts: SummaryParts, agent: ReadyAgent) -> ChatModel | None:
    policy = agent.definition.context.summary
    if not policy.model:
        return None
    try:
        return parts.models.get(policy.model, policy.base_url)
    except SettingInvalid as error:
        log.warning("summary model cannot be used", model=policy.model, error=error.code)
        return None


async def _summariser(parts: SummaryParts, agent: ReadyAgent, model: ChatModel, instructions: str) -> Summariser:
    """The agent's own window holds for its own model only; what is learned of a model holds for all."""
    is_own = model.calibration_key == agent.model.calibration_key
    calibration = None if is_own else await parts.calibrations.load(model.calibration_key)
    return Summariser(
        model=model,
        policy=agent.definition.context.summary,
        count=agent.counter.count,
        max_tokens=summary_tokens(agent),
        window_tokens=agent.budget.window_tokens if is_own else trusted_window(calibration, model.context_limit),
        factor=agent.factor if is_own else factor(calibration, is_known_tokenizer=model.has_known_tokenizer),
        instructions=instructions,
    )
