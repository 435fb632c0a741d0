"""Route that lists the agents with which a session can be opened.

System prompts belong to the operator and are not returned.
"""

from dataclasses import asdict
from http import HTTPStatus

from fastapi import APIRouter, Response

from throughline.agents.definition import AgentDefinition
from throughline.api.http.admitted_request import Reader
from throughline.api.http.responses import JsonResponse
from throughline.wire.json_shape import JsonDict
from throughline.wire.service import AgentList, AgentOut

router = APIRouter(prefix="/v1/agents", tags=["agents"])


@router.get("", responses={HTTPStatus.OK: {"model": AgentList}})
async def list_agents(call: Reader) -> Response:
    """List the agents by name."""
    agents = sorted(call.services.agents.all(), key=lambda agent: agent.name)
    return JsonResponse({"data": [_agent_json(agent) for agent in agents]})


def _agent_json(agent: AgentDefinition) -> JsonDict:
    return AgentOut.model_construct(
        name=agent.name,
        description=agent.description,
        model=agent.model,
        tools=list(agent.tools),
        max_tool_rounds=agent.max_tool_rounds,
        context=asdict(agent.context),
    ).model_dump()
