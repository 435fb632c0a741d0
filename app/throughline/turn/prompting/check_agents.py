"""Checks of agents at the start of the service, and of changed ones before they are used.

An error that would fail all of an agent's turns fails the start, or keeps the agents as they were.

Each error names the setting, or the agent and the field of its file.
"""

from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from throughline.agents.definition import AgentDefinition, OtherModel
from throughline.agents.registry import AgentDefaults
from throughline.context.budget import check_fits, make_budget
from throughline.context.measure import count_system
from throughline.domain.elicitation import ASK_USER
from throughline.domain.errors import AgentInvalid, PromptCannotFit, SettingInvalid
from throughline.domain.prompt import ModelParameters, OverrideField
from throughline.ports.hooks import Tools
from throughline.ports.models import ChatModel, Models
from throughline.turn.prompting.agent_windows import ask_windows, configured_window
from throughline.turn.prompting.ready_agent import PromptDependencies, ReadyAgent, assemble_unconnected_agent


def check_names(agents: Sequence[AgentDefinition], defaults: AgentDefaults, models: Models, tools: Tools) -> None:
    """Check that all models and tools exist that the settings and agents name.

    Raises SettingInvalid or AgentInvalid. It needs no database, so that it can run before any connection is opened.
    """
    with _locating_errors("DEFAULT_LLM", error_type=SettingInvalid):
        models.get("")
    with _locating_errors("CONTEXT_SUMMARY_MODEL", error_type=SettingInvalid):
        models.get(defaults.summary_model, defaults.summary_base_url, defaults.summary_api_key_env)
    for agent in agents:
        summary = agent.context.summary
        with _locating_errors(f"agent {agent.name}", "model"):
            model = models.get(agent.model, agent.base_url, agent.api_key_env)
        with _locating_errors(f"agent {agent.name}", "parameters"):
            model.check_parameters(agent.parameters)
        with _locating_errors(f"agent {agent.name}", "overrides"):
            _check_temperature(agent, model)
        _check_other_models(agent, model, models)
        with _locating_errors(f"agent {agent.name}", "summary.model"):
            models.get(summary.model, summary.base_url, summary.api_key_env)
        with _locating_errors(f"agent {agent.name}", "daily_budget.usd"):
            _check_prices(agent, models)
        with _locating_errors(f"agent {agent.name}", "tools"):
            specs = tools.specs(agent.tools)
        with _locating_errors(f"agent {agent.name}", "needs_approval"):
            _check_approvals(agent, {spec.name for spec in specs})


async def check_agents(dependencies: PromptDependencies, agents: Sequence[AgentDefinition]) -> tuple[ReadyAgent, ...]:
    """Check each agent by preparing it as its turns will do, and return the prepared agents. Raises AgentInvalid.

    An agent is also checked with each model that a request may name.

    Servers of models are asked for their windows first. A server that does not answer within seconds stops nothing.
    """
    variants = [variant for agent in agents for variant in agent.variants()]
    await ask_windows(variants, dependencies.models)
    ready = []
    for agent in agents:
        for number, variant in enumerate(agent.variants()):
            which = (f"override_models: {variant.model}",) if number else ()
            with _locating_errors(f"agent {agent.name}", *which):
                ready.append(await check_agent(dependencies, variant))
    return tuple(ready)


async def check_agent(dependencies: PromptDependencies, definition: AgentDefinition) -> ReadyAgent:
    """Check one agent by preparing it as a turn will do, and return the prepared agent.

    Raises SettingInvalid, also for a graph that cannot be run, and PromptCannotFit if the system prompt and tools leave
    no room for a conversation. The check uses our own count. Correction factors learned from a provider later make
    prompts smaller, but never stop an agent that passed. Its servers of tools are not asked: one that is away stops
    nothing.
    """
    agent = await assemble_unconnected_agent(dependencies, replace(definition, mcp_servers=()))
    if definition.graph:
        dependencies.agent_graphs.check(definition.graph, definition.tools)
    summary = definition.context.summary
    if summary.model:
        dependencies.models.get(summary.model, summary.base_url, summary.api_key_env)
    if definition.context.pre_compact:
        dependencies.hooks.get(definition.context.pre_compact)
    configured = make_budget(definition.context, configured_window(definition, agent.model).tokens)
    check_fits(configured, count_system(definition.system_prompt, agent.counter.count), agent.tools_tokens)
    return agent


def _check_approvals(agent: AgentDefinition, tools: Collection[str]) -> None:
    """Raise SettingInvalid unless the agent has each tool that needs approval. A question needs none."""
    for name in sorted(agent.needs_approval):
        if name not in tools:
            raise SettingInvalid(f"the agent has no tool {name!r}; it has: {', '.join(sorted(tools)) or 'none'}")
        if name == ASK_USER:
            raise SettingInvalid(f"{name} waits for an answer anyway: remove it")


def _check_prices(agent: AgentDefinition, models: Models) -> None:
    """Raise SettingInvalid if the agent has a budget in dollars and one of its models has no known price."""
    if agent.daily_budget.usd is None:
        return
    summary = agent.context.summary
    for model in (
        models.get(agent.model, agent.base_url, agent.api_key_env),
        *(
            models.get(other.model, other.base_url, other.api_key_env)
            for other in (*agent.fallback_models, *agent.override_models)
        ),
        *([models.get(summary.model, summary.base_url, summary.api_key_env)] if summary.model else []),
    ):
        if not model.is_priced:
            raise SettingInvalid(
                f"the price of {model.name} is unknown: write it into PRICES_FILE, or limit daily_budget.tokens instead"
            )


def _check_other_models(agent: AgentDefinition, model: ChatModel, models: Models) -> None:
    """Check the models that may answer instead of the agent's. Raises AgentInvalid."""
    named = (("fallback_models", agent.fallback_models), ("override_models", agent.override_models))
    for field, others in named:
        for named_model in others:
            with _locating_errors(f"agent {agent.name}", f"{field}: {named_model.model}"):
                other = models.get(named_model.model, named_model.base_url, named_model.api_key_env)
                other.check_parameters(named_model.parameters)
                _check_temperature(agent, other)
                _check_address(agent, named_model, model, other)


def _check_temperature(agent: AgentDefinition, model: ChatModel) -> None:
    """Raise SettingInvalid if a request may set a temperature that the model's provider does not take."""
    if OverrideField.TEMPERATURE in agent.overrides:
        model.check_parameters(ModelParameters(temperature=0.0))


def _check_address(agent: AgentDefinition, named: OtherModel, model: ChatModel, other: ChatModel) -> None:
    """Raise SettingInvalid if a model at an operator's own server would be replaced at its provider's address.

    The texts that the operator keeps on that server would leave it unnoticed.
    """
    is_same_provider = model.name.partition(":")[0] == other.name.partition(":")[0]
    if agent.base_url and not named.base_url and is_same_provider:
        raise SettingInvalid(
            "has no base_url, so that texts would leave the agent's own server for the provider's address: write the "
            "base_url of one or the other"
        )


@contextmanager
def _locating_errors(*places: str, error_type: type[AgentInvalid | SettingInvalid] = AgentInvalid) -> Generator[None]:
    """Prefix an error raised in the `with` block with `places`, and raise it as `error_type`."""
    try:
        yield
    except (SettingInvalid, PromptCannotFit) as error:
        raise error_type(": ".join((*places, error.detail))) from error
