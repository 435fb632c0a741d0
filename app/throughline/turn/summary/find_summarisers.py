"""The summary models of an agent, prepared for its summaries.

A module of its own, because it decides which models write; `summariser.py` says how one is called.
"""

from throughline.context.budget import summary_limit
from throughline.context.calibration import factor, stepped, trusted_window, unscale
from throughline.ports.models import ChatModel
from throughline.turn.prompting.ready_agent import ReadyAgent, calibration_key, named_summary_model
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.summariser import Summariser, SummaryRejected

INSTRUCTION_SHARE = 1 / 4
"""Largest share of a summary model's window for the instructions; the rest is for reading and writing."""


async def find_summarisers(
    dependencies: SummaryDependencies, agent: ReadyAgent, instructions: str = ""
) -> tuple[Summariser, ...]:
    """Return the agent's summary model (or the setting's, if the agent names none), then the agent's own model.

    An unavailable summary model does not stop summaries: the agent's own model writes them. A model is left out if the
    instructions take more than INSTRUCTION_SHARE of its window. Raises SummaryRejected if that leaves none.
    """
    policy = agent.definition.context.summary
    all_instructions = "\n".join(part for part in (policy.instructions, instructions) if part)
    found = [
        await _summariser(dependencies, agent, model, all_instructions) for model in summary_models(dependencies, agent)
    ]
    fitting = tuple(one for one in found if one.instruction_tokens <= INSTRUCTION_SHARE * one.window_tokens)
    if found and not fitting:
        largest = max(found, key=lambda one: one.window_tokens)
        raise SummaryRejected(
            f"The instructions for summaries take {largest.instruction_tokens:,} tokens, more than a quarter of the "
            f"summary model's window of {largest.window_tokens:,}: shorten summary_instructions of the session, or "
            "context.summary.instructions of the agent."
        )
    return fitting


def summary_models(dependencies: SummaryDependencies, agent: ReadyAgent) -> list[ChatModel]:
    """Return the agent's summary model, then the agent's own if it is another one."""
    named = named_summary_model(dependencies.models, agent)
    if named is None or named.calibration_key == agent.model.calibration_key:
        return [agent.model]
    return [named, agent.model]


def summary_tokens(agent: ReadyAgent) -> int:
    """Return the most tokens, by our count, of the agent's summary.

    The factor is rounded up in steps, so that small changes of it do not change this limit.
    """
    limit = summary_limit(agent.definition.context.summary, agent.budget)
    return max(unscale(limit, stepped(agent.factor)), 1)


async def _summariser(
    dependencies: SummaryDependencies, agent: ReadyAgent, model: ChatModel, instructions: str
) -> Summariser:
    """Return `model` as a summary model of the agent.

    A window set for the agent applies to its own model only; a learned calibration applies to every agent of a model.
    """
    is_own = model.calibration_key == agent.model.calibration_key
    if not is_own:
        await model.ask_window()
    calibration = None if is_own else await dependencies.calibrations.load(calibration_key(model, agent.counter))
    learned = agent.factor if is_own else factor(calibration, is_known_tokenizer=model.has_known_tokenizer)
    return Summariser(
        model=model,
        policy=agent.definition.context.summary,
        count=agent.counter.count,
        max_tokens=summary_tokens(agent),
        window_tokens=agent.budget.window_tokens if is_own else trusted_window(calibration, model.context_limit),
        factor=stepped(learned),
        instructions=instructions,
    )
