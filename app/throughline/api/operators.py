"""Routes for operators, whose keys have the scope `operate`: the state of the whole service."""

from http import HTTPStatus

from fastapi import APIRouter, Response

from throughline.http.call import Operator
from throughline.http.problem_documents import JsonResponse
from throughline.wire.service import ServiceStatusOut, status_json

status_router = APIRouter(prefix="/v1/status", tags=["operators"])


@status_router.get("", responses={HTTPStatus.OK: {"model": ServiceStatusOut}})
async def get_status(call: Operator) -> Response:
    """Return the state of the whole service: processes, queues, held runs, side jobs and circuit breakers."""
    return JsonResponse(status_json(await call.services.read_status()))
