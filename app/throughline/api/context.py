"""Routes that report how full a session's context is, and preview what a message would do to it.

They change nothing.
"""

from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from throughline.api.requests import PreviewContext
from throughline.http.admitted_request import PathId, Reader, session_id_of
from throughline.http.body import read_optional_body
from throughline.http.documented import described
from throughline.http.route_errors import AGENT
from throughline.http.sse import JsonResponse
from throughline.wire.context import PreviewOut, SessionContextOut

router = APIRouter(prefix="/v1/sessions/{session_id}/context", tags=["context"])


@router.get("", responses={HTTPStatus.OK: {"model": SessionContextOut}}, openapi_extra=described(errors=AGENT))
async def get_context(session_id: PathId, call: Reader) -> Response:
    """Return the context report of a session. `next_action` assumes an empty message and answer.

    `quoted` is what the newest turn quoted, as long as its events are stored.
    """
    report = await call.services.report_context(call.owner_id, session_id_of(session_id))
    return JsonResponse(SessionContextOut.render(report))


@router.post(
    "/preview",
    responses={HTTPStatus.OK: {"model": PreviewOut}},
    openapi_extra=described(body=PreviewContext, is_body_required=False, errors=AGENT),
)
async def preview_context(request: Request, session_id: PathId, call: Reader) -> Response:
    """Return the plan for the first model call that this message would cause: how its prompt shows each message."""
    found = session_id_of(session_id)
    body = await read_optional_body(request, PreviewContext)
    preview = await call.services.preview_context(call.owner_id, found, body.as_content())
    return JsonResponse(PreviewOut.render(preview))
