"""The configured agents, and the settings on chat models as the configuration of agents and of the model registry."""

from functools import partial

from throughline.agents.registry import AgentDefaults, AgentRegistry, load_agents
from throughline.assembly.database import read_quiet_settings
from throughline.assembly.env_file import prepare_environment
from throughline.cli.dependencies import LocalOptions
from throughline.domain.model_window import ModelCheck
from throughline.execution.call_plugin import add_plugin_folder
from throughline.llm.counters import counter_of, make_counter
from throughline.llm.prices import read_prices
from throughline.llm.registry import OFFLINE, ModelRegistry, ModelsConfig, inherited_base_url
from throughline.settings import Settings, read_variable
from throughline.system_clock import SystemClock
from throughline.turn.prompting.agent_windows import check_model


def agent_defaults(settings: Settings) -> AgentDefaults:
    """Return the values for agents whose file does not define them.

    If neither a summary model nor a default model is configured, an agent summarizes with its own model.
    """
    configured = "" if settings.default_llm == OFFLINE else settings.default_llm
    summary_model = settings.context_summary_model or configured
    beside = partial(
        inherited_base_url, default_model=settings.default_llm, default_base_url=settings.default_llm_base_url
    )
    return AgentDefaults(
        usage_threshold=settings.context_usage_threshold,
        summary_model=summary_model,
        summary_base_url=settings.context_summary_model_base_url or (beside(summary_model) if summary_model else None),
        inherited_default_base_url=beside,
        summary_api_key_env=settings.context_summary_model_api_key_env or None,
        counter_of=lambda model: counter_of(model or settings.default_llm),
    )


def models_config(settings: Settings) -> ModelsConfig:
    """Return the configuration of the model registry. Raises SettingInvalid if the file of prices is not valid."""
    return ModelsConfig(
        default_model=settings.default_llm,
        default_base_url=settings.default_llm_base_url or None,
        default_api_key_env=settings.default_llm_api_key_env or None,
        read_variable=read_variable,
        idle_timeout_seconds=settings.model_idle_timeout_seconds,
        prices=read_prices(settings.prices_file),
    )


def load_configured_agents(settings: Settings) -> AgentRegistry:
    """Return the shipped agents and those of the operator, whose folder may hold their tools, too.

    Raises AgentInvalid for wrong agent files, and SettingInvalid if the folder cannot be read.
    """
    defaults = agent_defaults(settings)
    if settings.agents_dir is None:
        return load_agents([], defaults)
    add_plugin_folder(settings.agents_dir)
    return load_agents([settings.agents_dir], defaults)


async def check_model_of(agent: str) -> ModelCheck:
    """Return what one real call of the agent's model shows.

    Raises NotFound for an unknown agent, and SettingInvalid or AgentInvalid for one whose model cannot be used.
    """
    settings = read_quiet_settings(LocalOptions())
    prepare_environment()
    definition = load_configured_agents(settings).get(agent)
    models = ModelRegistry(models_config(settings))
    try:
        model = models.get(definition.model, definition.base_url, definition.api_key_env)
        model.check_parameters(definition.parameters)
        counter = make_counter(definition.context.token_counter)
        return await check_model(model, counter, definition, SystemClock())
    finally:
        await models.close()
