"""The circuit breakers of the models of all agents, as operators read them: part of the service's state."""

from collections.abc import Iterator
from contextlib import suppress

from throughline.agents.definition import AgentDefinition
from throughline.domain.errors import SettingInvalid
from throughline.domain.service_status import ModelBreaker
from throughline.domain.usage_report import CallPurpose
from throughline.ports.models import ChatModel, Models
from throughline.turn.prompting.ready_agent import PromptDependencies, longest_block, model_keys, turns_key


def read_breakers(dependencies: PromptDependencies) -> tuple[ModelBreaker, ...]:
    """Return the breakers of this process, ordered by model: each once, however many agents use the model.

    Answers have one only where an agent has fallback models. Breakers of single sessions are left out.
    """
    found: dict[tuple[str, CallPurpose], ModelBreaker] = {}
    for agent in dependencies.agents.all():
        for model, purpose in _guarded(agent, dependencies.models):
            name = model.calibration_key
            keys = (turns_key(name),) if purpose is CallPurpose.ANSWER else model_keys(name)
            reading = longest_block(dependencies.breakers, *keys)
            found[name, purpose] = ModelBreaker(model.name, purpose, reading.state.value, reading.retry_after_seconds)
    return tuple(found[key] for key in sorted(found))


def _guarded(agent: AgentDefinition, models: Models) -> Iterator[tuple[ChatModel, CallPurpose]]:
    """Yield the agent's models with what a breaker guards of them. Models that cannot be used are left out."""
    summary = agent.context.summary
    for variant in agent.variants():
        with suppress(SettingInvalid):
            model = models.get(variant.model, variant.base_url, variant.api_key_env)
            yield model, CallPurpose.SUMMARY
            if variant.fallback_models:
                yield model, CallPurpose.ANSWER
    if summary.model:
        with suppress(SettingInvalid):
            yield models.get(summary.model, summary.base_url, summary.api_key_env), CallPurpose.SUMMARY
