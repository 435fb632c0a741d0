"""Route that lists the agents with which a session can be opened.

System prompts belong to the operator and are not returned.
"""

from dataclasses import asdict
from http import HTTPStatus

from fastapi import APIRouter, Response

from throughline.agents.definition import AgentDefinition
from throughline.domain.basic_types import JsonValue
from throughline.domain.model_window import ModelWindow
from throughline.domain.prompt import OverrideField
from throughline.http.admitted_request import Reader
from throughline.http.sse import JsonResponse
from throughline.wire.json_shape import JsonDict
from throughline.wire.service import AgentList, AgentOut

router = APIRouter(prefix="/v1/agents", tags=["agents"])


@router.get("", responses={HTTPStatus.OK: {"model": AgentList}})
async def list_agents(call: Reader) -> Response:
    """List the agents by name."""
    agents = sorted(call.services.agents.all(), key=lambda agent: agent.name)
    return JsonResponse({"data": [_agent_json(agent, await call.services.agent_window(agent)) for agent in agents]})


def _agent_json(agent: AgentDefinition, window: ModelWindow) -> JsonDict:
    return AgentOut.model_construct(
        name=agent.name,
        description=agent.description,
        model=agent.model,
        window=window.tokens,
        window_from=window.origin.value,
        tools=list(agent.tools),
        max_tool_rounds=agent.max_tool_rounds,
        max_client_rounds=agent.max_client_rounds,
        reasoning=agent.reasoning.value,
        parameters=_parameters(agent),
        daily_budget=asdict(agent.daily_budget),
        overrides=[name.value for name in OverrideField if name in agent.overrides],
        override_models=[other.model for other in agent.override_models],
        context=asdict(agent.context),
    ).model_dump()


def _parameters(agent: AgentDefinition) -> dict[str, JsonValue]:
    """Return the model parameters that the agent sets; of headers and body only the names: some values are secret."""
    parameters = agent.parameters
    given = {**dict(parameters.given()), "headers": sorted(parameters.headers), "body": sorted(parameters.body)}
    return {name: _plain(value) for name, value in given.items() if value != []}


def _plain(value: object) -> JsonValue:
    return list(value) if isinstance(value, tuple) else value  # type: ignore[return-value]  # as read from JSON
