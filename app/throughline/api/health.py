"""Routes for operators and monitoring: liveness, readiness and metrics. No key, no user data."""

import asyncio
from dataclasses import replace
from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from throughline.domain.errors import ThroughlineError
from throughline.http.admitted_request import dependencies_of
from throughline.http.services import Readiness
from throughline.http.sse import JsonResponse
from throughline.wire.json_shape import JsonDict
from throughline.wire.service import Health

router = APIRouter(tags=["health"])


@router.head("/health/live", include_in_schema=False)
@router.get("/health/live", responses={HTTPStatus.OK: {"model": Health}})
async def get_liveness(request: Request) -> Response:
    """Return 200 while the process answers, whatever the state of the database and other services."""
    return JsonResponse(_health_json(request, Readiness({})))


@router.head("/health/ready", include_in_schema=False)
@router.get(
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
    except ThroughlineError:
        readiness = Readiness({"database": False})
    if services.shutting_down.is_set():
        readiness = replace(readiness, checks={**readiness.checks, "serving": False})
    status = HTTPStatus.OK if readiness.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return JsonResponse(_health_json(request, readiness), status)


@router.head("/metrics", include_in_schema=False)
@router.get("/metrics", responses={HTTPStatus.OK: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
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
