"""Routes that tell of the service: the agents with which a session can be opened, its health and its metrics.

System prompts belong to the operator and are not returned.
"""

import asyncio
from dataclasses import asdict, replace
from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from throughline.agents.definition import AgentDefinition
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import ThroughlineError
from throughline.domain.model_window import ModelWindow
from throughline.domain.prompt import OverrideField
from throughline.http.call import Reader, dependencies_of
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.http.services import Readiness
from throughline.wire.json_shape import JsonDict
from throughline.wire.service import AgentList, AgentOut, Health

health_router = APIRouter(tags=["health"])


@health_router.head("/health/live", include_in_schema=False)
@health_router.get("/health/live", responses={HTTPStatus.OK: {"model": Health}})
async def get_liveness(request: Request) -> Response:
    """Return 200 while the process answers, whatever the state of the database and other services."""
    return JsonResponse(_health_json(request, Readiness({})))


@health_router.head("/health/ready", include_in_schema=False)
@health_router.get(
    "/health/ready",
    responses={HTTPStatus.OK: {"model": Health}, HTTPStatus.SERVICE_UNAVAILABLE: {"model": Health}},
)
async def get_readiness(request: Request) -> Response:
    """Return whether this process can accept messages now.

    `degraded` means ready, but slower, or with no worker in any process.
    """
    services = dependencies_of(request).services
    try:
        readiness = await services.check_ready()
    except ThroughlineError as error:
        readiness = Readiness({"database": False}, reasons={"database": error.detail})
    if services.shutting_down.is_set():
        readiness = replace(readiness, checks={**readiness.checks, "serving": False})
    status = HTTPStatus.OK if readiness.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return JsonResponse(_health_json(request, readiness), status)


@health_router.head("/metrics", include_in_schema=False)
@health_router.get("/metrics", responses={HTTPStatus.OK: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
async def get_metrics(request: Request) -> Response:
    """Return the process's metrics in the Prometheus text format. With hundreds of agents this takes a while."""
    body, media_type = await asyncio.to_thread(dependencies_of(request).services.render_metrics)
    return Response(body, media_type=media_type)


def _health_json(request: Request, readiness: Readiness) -> JsonDict:
    ready = "degraded" if readiness.is_degraded else "ok"
    return Health.model_construct(
        status=ready if readiness.is_ready else "unavailable",
        version=dependencies_of(request).config.version,
        checks={**readiness.checks, **readiness.hints},
        reasons=dict(readiness.reasons),
    ).model_dump()


router = PrefixRouter(prefix="/v1/agents", tags=["agents"])


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
        mcp_servers=[server.name for server in agent.mcp_servers],
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
