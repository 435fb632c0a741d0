"""Sessions as resources of the MCP server: their newest messages as text."""

from pydantic import BaseModel, Field

from throughline.db.sessions.repository import SessionQuery
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import NotFound
from throughline.domain.keys import Scope
from throughline.domain.session import Session
from throughline.http.call import session_id_of
from throughline.mcp.history import ReadMessagesArguments, message_line, read_texts
from throughline.mcp.protocol import INVALID_PARAMS, RESOURCE_NOT_FOUND, ProtocolError
from throughline.mcp.request import NO_META, McpRequest
from throughline.wire.json_shape import JsonDict

PREFIX = "throughline://sessions/"
MIME_TYPE = "text/plain"
PAGE, NEWEST = 50, 100


class ListParameters(BaseModel):
    """The page of a list."""

    model_config = NO_META

    cursor: str | None = Field(None, max_length=512)


class ReadParameters(BaseModel):
    """The resource to read."""

    model_config = NO_META

    uri: str = Field(max_length=2_000)


async def list_resources(asked: McpRequest) -> JsonDict:
    """Return a page of the caller's sessions as resources, the last updated first."""
    cursor = asked.read(ListParameters).cursor
    call = await asked.reach(Scope.READ, "GET", "/v1/sessions")
    page = await call.services.database.sessions.list(call.owner_id, SessionQuery(limit=PAGE, cursor=cursor))
    shown: JsonDict = {"resources": [_resource_json(session) for session in page.items]}
    return shown if page.next_cursor is None else {**shown, "nextCursor": page.next_cursor}


def _resource_json(session: Session) -> JsonValue:
    return {
        "uri": f"{PREFIX}{session.id}",
        "name": str(session.id),
        "title": session.title or f"Session with {session.agent}",
        "description": f"{session.message_count} messages with {session.agent}",
        "mimeType": MIME_TYPE,
        "annotations": {"lastModified": session.updated_at.isoformat()},
    }


async def list_templates(_asked: McpRequest) -> JsonDict:
    """Return the form of all addresses of resources."""
    template: JsonDict = {
        "uriTemplate": f"{PREFIX}{{session_id}}",
        "name": "session",
        "title": "Session",
        "description": f"The newest {NEWEST} messages of a session; the tool read_messages reads the others.",
        "mimeType": MIME_TYPE,
    }
    return {"resourceTemplates": [template]}


async def read_resource(asked: McpRequest) -> JsonDict:
    """Return the newest messages of a session as text. Raises ProtocolError if there is no such resource."""
    uri = asked.read(ReadParameters).uri
    try:
        text = await _read_session(asked, uri.removeprefix(PREFIX) if uri.startswith(PREFIX) else "")
    except NotFound:
        code = INVALID_PARAMS if asked.message.is_stateless else RESOURCE_NOT_FOUND
        raise ProtocolError(code, "There is no such resource.", {"uri": uri}) from None
    return {"contents": [{"uri": uri, "mimeType": MIME_TYPE, "text": text}]}


async def _read_session(asked: McpRequest, name: str) -> str:
    call, session_id = await asked.reach_session(name, "/messages"), session_id_of(name)
    session = await call.services.database.sessions.get(call.owner_id, session_id)
    found = await read_texts(call, session_id, ReadMessagesArguments(session_id=name, limit=NEWEST))
    lines = [message_line(one) for one in found["messages"]]  # type: ignore[union-attr,arg-type]  # as `read_texts` made it
    head = (
        f"{session.title or 'Session'} with {session.agent}, {session.message_count} messages; the newest {len(lines)}:"
    )
    return "\n\n".join([head, *lines])
