"""Routes for pins.

Every prompt shows a pinned message word for word, even if a summary covers the messages around it.
"""

from http import HTTPStatus

from fastapi import APIRouter, Response

from throughline.http.admitted_request import PathId, Writer, message_id_of, session_id_of
from throughline.http.documented import described
from throughline.http.route_errors import AGENT
from throughline.http.sse import JsonResponse
from throughline.wire.messages import MessageOut, PinnedGroup

router = APIRouter(prefix="/v1/sessions/{session_id}/messages/{message_id}/pin", tags=["messages"])


@router.put("", responses={HTTPStatus.OK: {"model": PinnedGroup}}, openapi_extra=described(errors=AGENT))
async def pin_message(session_id: PathId, message_id: PathId, call: Writer) -> Response:
    """Pin a message with its whole group: a tool call and its results. Refused (422) if too much is pinned."""
    group = await call.services.pin_message(call.owner_id, session_id_of(session_id), message_id_of(message_id))
    return JsonResponse(MessageOut.render_all(group))


@router.delete("", status_code=HTTPStatus.NO_CONTENT)
async def unpin_message(session_id: PathId, message_id: PathId, call: Writer) -> Response:
    """Remove the pin from a message and its whole group. Without a pin, nothing happens."""
    await call.services.unpin_message(call.owner_id, session_id_of(session_id), message_id_of(message_id))
    return Response(status_code=HTTPStatus.NO_CONTENT)
