"""What the settings say about chat models, as the values that agents and the registry of models take."""

from functools import partial

from throughline.agents.registry import AgentDefaults
from throughline.llm.counters import counter_of
from throughline.llm.registry import OFFLINE, ModelsConfig, address_beside
from throughline.settings import Settings, read_variable


def agent_defaults(settings: Settings) -> AgentDefaults:
    """Return what agents have that name nothing.

    Without a summary model and a default model of the operator's, an agent summarises with its own model.
    """
    configured = "" if settings.default_llm == OFFLINE else settings.default_llm
    summary_model = settings.context_summary_model or configured
    beside = partial(address_beside, default_model=settings.default_llm, default_base_url=settings.default_llm_base_url)
    return AgentDefaults(
        usage_threshold=settings.context_usage_threshold,
        summary_model=summary_model,
        summary_base_url=settings.context_summary_model_base_url or (beside(summary_model) if summary_model else None),
        address_beside_default=beside,
        summary_api_key_env=settings.context_summary_model_api_key_env or None,
        counter_of=lambda model: counter_of(model or settings.default_llm),
    )


def models_config(settings: Settings) -> ModelsConfig:
    """Return what the registry of models is told."""
    return ModelsConfig(
        default_model=settings.default_llm,
        default_base_url=settings.default_llm_base_url or None,
        default_api_key_env=settings.default_llm_api_key_env or None,
        read_variable=read_variable,
        idle_timeout_seconds=settings.model_idle_timeout_seconds,
    )
