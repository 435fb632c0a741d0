"""How full a session's context is, and what the next message will do to it."""

from http import HTTPStatus

from fastapi import APIRouter, Response

from app.api.call import Reader, session_id_of
from app.api.responses import JsonResponse
from app.context.explain import ContextReport, report_json

router = APIRouter(prefix="/v1/sessions/{session_id}/context", tags=["context"])


@router.get("", responses={HTTPStatus.OK: {"model": ContextReport}})
async def get_context(session_id: str, call: Reader) -> Response:
    """Return the context report of a session."""
    report = await call.services.report_context(call.owner_id, session_id_of(session_id))
    return JsonResponse(report_json(report))
