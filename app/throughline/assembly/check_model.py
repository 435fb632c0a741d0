"""The check of an agent's model in this process, with the settings and keys of the service and no database."""

from throughline.assembly.database import read_quiet_settings
from throughline.assembly.env_file import prepare_environment
from throughline.assembly.models import load_configured_agents, models_config
from throughline.cli.dependencies import LocalOptions
from throughline.domain.model_window import ModelCheck
from throughline.llm.counters import make_counter
from throughline.llm.registry import ModelRegistry
from throughline.prompting import check_model
from throughline.system_clock import SystemClock


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
        return await check_model.check_model(model, counter, definition, SystemClock())
    finally:
        await models.close()
