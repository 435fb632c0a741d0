"""The agent of a turn whose request overrides some of the agent's fields, or brings tools that its client runs.

The interfaces apply them before they store a message, to refuse what the agent does not allow. The turn applies
them again, because agents and their files may have changed since.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentRegistry
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.prompt import NO_OVERRIDES, OverrideField, Overrides
from throughline.domain.run import RunInput
from throughline.ports.hooks import Tools
from throughline.ports.models import FormatSupport, Models
from throughline.turn.llm_node import check_response_format
from throughline.turn.prompting.ready_agent import client_preference

MAX_SHOWN = 100
LOWERED = frozenset({OverrideField.TEMPERATURE, OverrideField.INSTRUCTIONS, OverrideField.RESPONSE_FORMAT})
"""Fields that a lenient request may have without the agent's permission.

Its temperature is left out, its instructions become a preference, and its format holds, because it says only how the
answer is read.
"""


@dataclass(frozen=True, slots=True)
class RequestChecker:
    """Checker of what requests override and bring, before their messages are stored."""

    agents: AgentRegistry
    models: Models
    tools: Tools

    async def check(self, name: str, given: RunInput) -> None:
        """Raise InvalidInput if the agent `name`, or its model, does not allow the overrides or the client's tools.

        An agent that does not exist allows all: its turns fail anyway, and keep their messages.
        """
        with suppress(NotFound):
            agent = apply_request(self.agents.get(name), given, self.models)
            if given.client_tools or given.overrides.chosen_tools:
                taken = {spec.name for spec in self.tools.specs(agent.tools)}
                _check_names(agent, taken)
                _check_chosen(given, taken)
        if given.overrides.response_format is not None:
            await check_response_format(given.overrides.response_format)


def apply_request(definition: AgentDefinition, given: RunInput, models: Models) -> AgentDefinition:
    """Return the agent with the request's overrides and the client's tools.

    Raises InvalidInput for what the agent or its model does not allow.
    """
    if given.client_tools and not definition.client_tools:
        raise InvalidInput(
            f"The agent {definition.name!r} takes no tools from requests. Leave them out, or set `client_tools` to "
            "true in the agent's file.",
            field="tools",
        )
    agent = apply_overrides(definition, given.overrides, models)
    return replace(agent, request_tools=given.client_tools) if given.client_tools else agent


def apply_overrides(definition: AgentDefinition, overrides: Overrides, models: Models) -> AgentDefinition:
    """Return the agent with the overrides. Raises InvalidInput for what the agent or its model does not allow."""
    if overrides == NO_OVERRIDES:
        return definition
    if definition.graph:
        _check_graph(definition, overrides)
    lowered = _lowered(definition, overrides)
    for field in overrides.given():
        if field not in lowered:
            _check_allowed(definition, field)
    agent = definition if overrides.model is None else _with_model(definition, overrides.model)
    if overrides.temperature is not None and OverrideField.TEMPERATURE not in lowered:
        agent = _with_temperature(agent, overrides.temperature)
    instructions = overrides.instructions or ""
    agent = replace(
        agent,
        instructions=client_preference(instructions) if OverrideField.INSTRUCTIONS in lowered else instructions,
        response_format=overrides.response_format,
        max_output_tokens=overrides.max_output_tokens,
        tool_choice=overrides.tool_choice,
        allowed_tools=overrides.allowed_tools,
    )
    if agent.response_format is not None:
        _check_format(agent, models)
    return agent


def _lowered(definition: AgentDefinition, overrides: Overrides) -> frozenset[OverrideField]:
    """Return the fields that the agent does not allow and a lenient request may have all the same, as LOWERED says."""
    if not overrides.is_lenient or definition.strict_overrides:
        return frozenset()
    return LOWERED.intersection(overrides.given()) - definition.overrides


def _check_names(agent: AgentDefinition, taken: Collection[str]) -> None:
    """Raise InvalidInput for a client's tool with the name of one of the agent's own."""
    for number, tool in enumerate(agent.request_tools):
        if tool.name in taken:
            raise InvalidInput(
                f"The agent {agent.name!r} has a tool {tool.name!r} of its own. Give yours another name.",
                field=f"tools.{number}.name",
            )


def _check_chosen(given: RunInput, of_agent: Collection[str]) -> None:
    """Raise InvalidInput for a chosen tool that neither the client nor the agent has; `of_agent` names the agent's."""
    known = {*of_agent, *(tool.name for tool in given.client_tools)}
    for name in given.overrides.chosen_tools:
        if name not in known:
            raise InvalidInput(
                f"`tool_choice` names the tool {name!r}, which neither the request nor the agent has. Add it to "
                "`tools`, or name another one.",
                field="tool_choice",
            )


def _check_graph(definition: AgentDefinition, overrides: Overrides) -> None:
    """Raise InvalidInput for overrides of single model calls: which of its calls would be meant, a graph cannot say."""
    for field in ("response_format", "tool_choice", "allowed_tools"):
        if getattr(overrides, field) is not None:
            raise InvalidInput(
                f"The agent {definition.name!r} is a graph, which decides on its own calls: leave {field} out.",
                field=f"overrides.{field}",
            )


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
