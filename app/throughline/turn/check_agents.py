"""Checks all agents at the start of the service: what would fail an agent's turns for ever fails the start instead.

Each error says which setting it is about, or which agent and which field of its file.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentDefaults
from throughline.context.budget import check_fits, make_budget
from throughline.context.measure import count_system
from throughline.domain.errors import AgentInvalid, PromptCannotFit, SettingInvalid
from throughline.ports.models import Models
from throughline.ports.tools import Tools
from throughline.prompting.ready_agent import ReadyAgent, assemble_agent
from throughline.turn.state import TurnDependencies


def check_names(agents: Sequence[AgentDefinition], defaults: AgentDefaults, models: Models, tools: Tools) -> None:
    """Find the models and tools that the settings and agents name. Raises SettingInvalid, AgentInvalid.

    Needs no database, so that it can come before anything is opened.
    """
    with _told("DEFAULT_LLM", error_type=SettingInvalid):
        models.get("")
    with _told("CONTEXT_SUMMARY_MODEL", error_type=SettingInvalid):
        models.get(defaults.summary_model, defaults.summary_base_url, defaults.summary_api_key_env)
    for agent in agents:
        summary = agent.context.summary
        with _told(f"agent {agent.name}", "model"):
            models.get(agent.model, agent.base_url, agent.api_key_env)
        with _told(f"agent {agent.name}", "summary.model"):
            models.get(summary.model, summary.base_url, summary.api_key_env)
        with _told(f"agent {agent.name}", "tools"):
            tools.specs(agent.tools)


async def check_agents(dependencies: TurnDependencies) -> tuple[ReadyAgent, ...]:
    """Check every agent by making it ready once, as its turns will; return them. Raises AgentInvalid."""
    ready = []
    for definition in dependencies.agents.all():
        with _told(f"agent {definition.name}"):
            ready.append(await check_agent(dependencies, definition))
    return tuple(ready)


async def check_agent(dependencies: TurnDependencies, definition: AgentDefinition) -> ReadyAgent:
    """Make an agent ready as a turn will; for the start of the service.

    Raises SettingInvalid, and PromptCannotFit where its prompt and tools leave no room to talk. By our plain count:
    what is learned of a provider later makes prompts smaller; it never stops an agent that worked.
    """
    agent = await assemble_agent(dependencies, definition)
    summary = definition.context.summary
    if summary.model:
        dependencies.models.get(summary.model, summary.base_url, summary.api_key_env)
    if definition.context.pre_compact:
        dependencies.hooks.get(definition.context.pre_compact)
    configured = make_budget(definition.context, definition.context.window or agent.model.context_limit)
    check_fits(configured, count_system(definition.system_prompt, agent.counter.count), agent.tools_tokens)
    return agent


@contextmanager
def _told(*places: str, error_type: type[AgentInvalid | SettingInvalid] = AgentInvalid) -> Generator[None]:
    """Put where it stands before what is wrong."""
    try:
        yield
    except (SettingInvalid, PromptCannotFit) as error:
        raise error_type(": ".join((*places, error.detail))) from error
