"""Tools that read sessions, their messages, searches and contexts; and sessions as resources, which are text."""

from pydantic import BaseModel, Field

from throughline.db.sessions.messages import MessageQuery
from throughline.db.sessions.repository import SessionQuery
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import NotFound
from throughline.domain.keys import Scope
from throughline.domain.message import LAST_POSITION, Message, Role, text_of
from throughline.domain.recall import Hit
from throughline.domain.session import Session
from throughline.http.call import session_id_of
from throughline.http.fields import STRICT, ListSessions, SearchHistory
from throughline.mcp_server.protocol import INVALID_PARAMS, RESOURCE_NOT_FOUND, McpRequest, ProtocolError, ToolResult
from throughline.wire.context import SessionContextOut
from throughline.wire.json_shape import Id, JsonDict, Shape, Time
from throughline.wire.sessions import SessionOut

PREFIX = "throughline://sessions/"
MIME_TYPE = "text/plain"
PAGE, NEWEST = 50, 100
SESSION_FIELD = Field(description="id of the session, as list_sessions returns it")


class ReadMessagesArguments(BaseModel):
    """Read messages of a session, oldest first, also those that a summary covers. Long texts are cut."""

    model_config = STRICT

    session_id: str = SESSION_FIELD
    from_position: int | None = Field(
        None, ge=1, le=LAST_POSITION, description="position of the first message; the newest messages if left out"
    )
    limit: int = Field(20, ge=1, le=200)
    max_characters: int = Field(4_000, ge=100, le=1_000_000, description="longest text of one message")


class SearchHistoryArguments(SearchHistory):
    """Search earlier messages by words and meaning; the best matches come first. read_messages shows what is around."""

    session_id: str | None = Field(None, description="search this session only; all of yours if left out")


class ListSessionsArguments(ListSessions):
    """List your sessions, the last updated first."""


class GetContextArguments(BaseModel):
    """Return how full the window of a session's model is, and when its messages are summarized next."""

    model_config = STRICT

    session_id: str = SESSION_FIELD


class ReadMessageOut(Shape):
    """A message as it is read by a model."""

    position: int
    role: str
    author: str | None
    created_at: Time
    text: str
    is_cut: bool = Field(description="the text is longer; a larger max_characters of read_messages shows more")
    tool: str | None = Field(description="in a tool's result: the name of the tool")
    called_tools: list[str] = Field(description="names of the tools that the message calls")

    def line(self) -> str:
        """Return the message as text for a model."""
        who = " ".join(part for part in (self.role, self.tool or self.author) if part)
        cut = " …" if self.is_cut else ""
        calls = f" [calls {', '.join(self.called_tools)}]" if self.called_tools else ""
        return f"#{self.position} {who}, {self.created_at.isoformat()}: {self.text}{cut}{calls}"


class ReadMessagesOut(Shape):
    """Messages of a session."""

    session_id: Id
    messages: list[ReadMessageOut]
    next_position: int | None = Field(description="from_position of the next page; null after the newest message")


class FoundMessageOut(ReadMessageOut):
    """A found message with the best matching part of its text."""

    session_id: Id
    session_title: str
    score: float = Field(description="comparable within one result")


class FoundMessagesOut(Shape):
    """The result of a search, the best match first."""

    messages: list[FoundMessageOut]
    is_complete: bool = Field(description="false if some sessions are still being indexed: search again soon")


async def search_history(asked: McpRequest, given: SearchHistoryArguments) -> ToolResult:
    """Search one session, or all sessions of the caller. Raises NotFound, InvalidInput."""
    if given.session_id is None:
        call, session_id = await asked.authorize(Scope.READ, "GET", "/v1/search"), None
    else:
        call, session_id = await asked.authorize_session(given.session_id, "/search"), session_id_of(given.session_id)
    query = given.as_query(call.services.clock.now().date())
    found = await call.services.history.search(call.owner_id, session_id, query)
    titles = await call.services.database.sessions.titles_of(call.owner_id, found.hits)
    messages = [_found(hit, title) for hit, title in zip(found.hits, titles, strict=True)]
    shown = FoundMessagesOut(messages=messages, is_complete=not found.incomplete_sessions)
    lines = [f"session {one.session_id} ({one.session_title})\n{one.line()}" for one in messages]
    return _result(shown, "\n\n".join(lines) or "No message matches.")


async def read_messages(asked: McpRequest, given: ReadMessagesArguments) -> ToolResult:
    """Return messages from a position on, or the newest ones. Raises NotFound."""
    call, session_id = await asked.authorize_session(given.session_id, "/messages"), session_id_of(given.session_id)
    first = given.from_position
    query = MessageQuery(first and first - 1, None, given.limit, "asc" if first else "desc")
    page = await call.services.database.messages.list_messages(call.owner_id, session_id, query)
    messages = [_read(message, given.max_characters) for message in (page.items if first else page.items[::-1])]
    following = messages[-1].position + 1 if first and page.next_cursor is not None else None
    shown = ReadMessagesOut(session_id=str(session_id), messages=messages, next_position=following)
    return _result(shown, "\n\n".join(one.line() for one in messages) or "There are no messages.")


def _read(message: Message, max_characters: int) -> ReadMessageOut:
    text = text_of(message.content)
    return ReadMessageOut(
        position=message.position,
        role=message.role,
        author=message.author,
        created_at=message.created_at,
        text=text[:max_characters],
        is_cut=len(text) > max_characters,
        tool=message.name if message.role is Role.TOOL else None,
        called_tools=[call.name for call in message.tool_calls],
    )


def _found(hit: Hit, title: str) -> FoundMessageOut:
    read = dict(_read(hit.message, len(hit.snippet)))
    session_id = str(hit.message.session_id)
    return FoundMessageOut(**{**read, "text": hit.snippet}, session_id=session_id, session_title=title, score=hit.score)


async def list_sessions(asked: McpRequest, given: ListSessionsArguments) -> ToolResult:
    """Return a page of the caller's sessions. Raises InvalidInput for a wrong cursor."""
    call = await asked.authorize(Scope.READ, "GET", "/v1/sessions")
    page = await call.services.database.sessions.list(call.owner_id, given.as_query())
    lines = [
        f"{one.id} {one.title or '(no title)'}: {one.message_count} messages with {one.agent}, "
        f"{one.updated_at:%Y-%m-%d %H:%M}"
        for one in page.items
    ]
    return ToolResult(SessionOut.render_page(page), ("\n".join(lines) or "There are no sessions.",))


async def get_context(asked: McpRequest, given: GetContextArguments) -> ToolResult:
    """Return the context report of a session. Raises NotFound."""
    call = await asked.authorize_session(given.session_id, "/context")
    report = await call.services.report_context(call.owner_id, session_id_of(given.session_id))
    told = (
        f"{report.total_tokens} of {report.context_window} tokens ({report.usage_percent} %); a summary is due above "
        f"{report.threshold_tokens}. Next action: {report.next_action}."
    )
    return ToolResult(SessionContextOut.render(report), (told,))


def _result(shown: Shape, text: str) -> ToolResult:
    return ToolResult(shown.model_dump(mode="json"), (text,))


async def list_resources(asked: McpRequest) -> JsonDict:
    """Return a page of the caller's sessions as resources, the last updated first. Raises InvalidInput."""
    call = await asked.authorize(Scope.READ, "GET", "/v1/sessions")
    cursor = asked.text("cursor") if "cursor" in asked.message.params else None
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
    uri = asked.text("uri")
    session_id = uri.removeprefix(PREFIX) if uri.startswith(PREFIX) else ""
    try:
        read = await read_messages(asked, ReadMessagesArguments(session_id=session_id, limit=NEWEST))
    except NotFound:
        code = INVALID_PARAMS if asked.is_stateless else RESOURCE_NOT_FOUND
        raise ProtocolError(code, "There is no such resource.", {"uri": uri}) from None
    return {"contents": [{"uri": uri, "mimeType": MIME_TYPE, "text": read.texts[0]}]}
