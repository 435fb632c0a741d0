"""The agent of a turn whose request overrides some of the agent's fields.

The interfaces apply overrides before they store a message, to refuse what the agent does not allow. The turn applies
them again, because agents and their files may have changed since.
"""

from contextlib import suppress
from dataclasses import replace

from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentRegistry
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.overrides import NO_OVERRIDES, OverrideField, Overrides
from throughline.ports.models import FormatSupport, Models
from throughline.turn.response_format import check_response_format

MAX_SHOWN = 100


async def check_overrides(agents: AgentRegistry, models: Models, name: str, overrides: Overrides) -> None:
    """Raise InvalidInput if the agent `name`, or its model, does not allow the overrides.

    An agent that does not exist allows all: its turns fail anyway, and keep their messages.
    """
    with suppress(NotFound):
        apply_overrides(agents.get(name), overrides, models)
    if overrides.response_format is not None:
        await check_response_format(overrides.response_format)


def apply_overrides(definition: AgentDefinition, overrides: Overrides, models: Models) -> AgentDefinition:
    """Return the agent with the overrides. Raises InvalidInput for what the agent or its model does not allow."""
    if overrides == NO_OVERRIDES:
        return definition
    for field in overrides.given():
        _check_allowed(definition, field)
    agent = definition if overrides.model is None else _with_model(definition, overrides.model)
    if overrides.temperature is not None:
        agent = _with_temperature(agent, overrides.temperature)
    agent = replace(agent, instructions=overrides.instructions or "", response_format=overrides.response_format)
    if agent.response_format is not None:
        _check_format(agent, models)
    return agent


def _check_allowed(definition: AgentDefinition, field: OverrideField) -> None:
    if field in definition.overrides:
        return
    allowed = ", ".join(name for name in OverrideField if name in definition.overrides) or "none"
    raise InvalidInput(
        f"The agent {definition.name!r} does not allow requests to override {field}; it allows: {allowed}. Leave it "
        "out, or add it to `overrides` in the agent's file.",
        field=f"overrides.{field}",
    )


def _with_model(definition: AgentDefinition, name: str) -> AgentDefinition:
    for other in definition.override_models:
        if other.model == name:
            return definition.with_model(other)
    allowed = ", ".join(other.model for other in definition.override_models)
    raise InvalidInput(
        f"The agent {definition.name!r} has no model {name[:MAX_SHOWN]!r} for requests; it has: {allowed}. Name one of "
        "them, or leave it out.",
        field="overrides.model",
    )


def _with_temperature(agent: AgentDefinition, temperature: float) -> AgentDefinition:
    """Return the agent with the temperature for its model and its fallback models."""
    fallbacks = tuple(
        replace(fallback, parameters=replace(fallback.parameters, temperature=temperature))
        for fallback in agent.fallback_models
    )
    return replace(agent, parameters=replace(agent.parameters, temperature=temperature), fallback_models=fallbacks)


def _check_format(agent: AgentDefinition, models: Models) -> None:
    model = models.get(agent.model, agent.base_url, agent.api_key_env)
    if model.format_support is FormatSupport.NONE:
        raise InvalidInput(
            f"The model {model.name!r} cannot answer in a response format. Leave it out, or use another model.",
            field=f"overrides.{OverrideField.RESPONSE_FORMAT}",
        )
