"""Route that exports a session and its whole history as JSON Lines, read page by page."""

from collections.abc import AsyncGenerator
from http import HTTPStatus

from fastapi import APIRouter
from starlette.responses import StreamingResponse

from throughline.db.sessions.messages import MessageQuery
from throughline.domain.message import Message
from throughline.domain.session import Session
from throughline.http.admitted_request import Call, PathId, Reader, session_id_of
from throughline.http.documented import response_headers
from throughline.http.sse import json_bytes
from throughline.wire.json_shape import JsonDict
from throughline.wire.messages import ExportedMessage, MessageOut
from throughline.wire.sessions import SessionOut

MEDIA_TYPE = "application/x-ndjson"
PAGE_MESSAGES = 200
router = APIRouter(prefix="/v1/sessions/{session_id}/export", tags=["sessions"])


@router.get(
    "",
    responses={
        HTTPStatus.OK: {
            "description": "one JSON object a line",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
            "headers": response_headers("Content-Disposition"),
        }
    },
)
async def export_session(session_id: PathId, call: Reader) -> StreamingResponse:
    """Return a session and all its messages as JSON Lines.

    The first object has the `type` `session`, all others `message`. A complete export has at least as many messages as
    its first line says.
    """
    session = await call.services.database.sessions.get(call.owner_id, session_id_of(session_id))
    headers = {"Content-Disposition": f'attachment; filename="{session.id}.jsonl"'}
    return StreamingResponse(_lines(call, session), media_type=MEDIA_TYPE, headers=headers)


async def _lines(call: Call, session: Session) -> AsyncGenerator[bytes]:
    """Yield the lines of an export. No database connection is held while the client reads a page."""
    yield _line("session", SessionOut.render(session))
    after: int | None = None
    while True:
        query = MessageQuery(after=after, limit=PAGE_MESSAGES, reasoning="shown")
        page = await call.services.database.messages.list_messages(call.owner_id, session.id, query)
        for message in page.items:
            yield _line("message", _rendered(message))
        if page.next_cursor is None:
            return
        after = int(page.next_cursor)


def _rendered(message: Message) -> JsonDict:
    shown = ExportedMessage.render(message)
    return shown if message.reasoning is not None else {name: shown[name] for name in MessageOut.model_fields}


def _line(kind: str, item: JsonDict) -> bytes:
    return json_bytes({"type": kind, **item}) + b"\n"
