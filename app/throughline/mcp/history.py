"""Tools and resources that read: sessions, their messages, searches and the context of a session."""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from throughline.db.sessions.messages import MessageQuery
from throughline.db.sessions.repository import SessionQuery
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import InvalidInput
from throughline.domain.keys import Scope
from throughline.domain.message import LAST_POSITION, Message, Role, clean_text, text_of
from throughline.domain.recall import HistoryFilter, HistoryQuery
from throughline.http.call import Call, session_id_of
from throughline.http.fields import STRICT
from throughline.mcp.request import McpRequest
from throughline.mcp.tool_result import ToolResult
from throughline.wire.context import SessionContextOut
from throughline.wire.json_shape import Id, JsonDict, Shape, Time

MAX_CHARACTERS = 4_000
SESSION_FIELD = Field(description="id of the session, as list_sessions returns it")


class ReadMessagesArguments(BaseModel):
    """Read messages of a session, oldest first, also those that a summary covers. Long texts are cut."""

    model_config = STRICT

    session_id: str = SESSION_FIELD
    from_position: int | None = Field(
        None, ge=1, le=LAST_POSITION, description="position of the first message; the newest messages if left out"
    )
    limit: int = Field(20, ge=1, le=200)
    max_characters: int = Field(MAX_CHARACTERS, ge=100, le=1_000_000, description="longest text of one message")


class SearchHistoryArguments(BaseModel):
    """Search earlier messages by words and meaning; the best matches come first. read_messages shows what is around."""

    model_config = STRICT

    query: str = Field(
        min_length=1,
        max_length=1_000,
        description='words; "words in quotes" must appear so; filters: `author:`, `role:`, `tool:`, and with a day '
        "`on:`, `before:`, `after:`",
    )
    session_id: str | None = Field(None, description="search this session only; all of yours if left out")
    limit: int = Field(10, ge=1, le=50)


class ListSessionsArguments(BaseModel):
    """List your sessions, the last updated first."""

    model_config = STRICT

    title: str | None = Field(None, max_length=200, description="part of the title")
    agent: str | None = Field(None, max_length=100)
    limit: int = Field(20, ge=1, le=200)
    cursor: str | None = Field(None, max_length=512, description="next_cursor of the previous page")


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
    is_cut: bool = Field(default=False, description="the text is longer; a larger max_characters shows more")
    tool: str | None = Field(None, description="in a tool's result: the name of the tool")
    called_tools: list[str] = Field(default_factory=list, description="names of the tools that the message calls")


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


class ListedSessionOut(Shape):
    """One line of list_sessions: what a model needs to choose a session."""

    id: Id
    title: str
    agent: str
    message_count: int
    updated_at: Time


class ListedSessionsOut(Shape):
    """A page of sessions."""

    sessions: list[ListedSessionOut]
    next_cursor: str | None


async def search_history(asked: McpRequest, given: SearchHistoryArguments) -> ToolResult:
    """Search one session, or all sessions of the caller. Raises NotFound, InvalidInput."""
    session_id: SessionId | None = None
    if given.session_id is None:
        call = await asked.reach(Scope.READ, "GET", "/v1/search")
    else:
        call = await asked.reach_session(given.session_id, "/search")
        session_id = session_id_of(given.session_id)
    query = HistoryQuery(clean_text(given.query), given.limit, HistoryFilter(), call.services.clock.now().date())
    try:
        found = await call.services.history.search(call.owner_id, session_id, query)
    except InvalidInput as error:
        raise InvalidInput(error.detail, field="query") from error
    titles = await call.services.database.sessions.titles_of(call.owner_id, found.hits)
    messages: list[JsonDict] = [
        {
            **message_json(hit.message, MAX_CHARACTERS),
            "text": hit.snippet,
            "is_cut": len(hit.snippet) < len(text_of(hit.message.content)),
            "session_id": str(hit.message.session_id),
            "session_title": title,
            "score": hit.score,
        }
        for hit, title in zip(found.hits, titles, strict=True)
    ]
    shown = FoundMessagesOut.render({"messages": messages, "is_complete": not found.incomplete_sessions})
    lines = [f"session {one['session_id']} ({one['session_title']})\n{message_line(one)}" for one in messages]
    return ToolResult(shown, ("\n\n".join(lines) or "No message matches.",))


async def read_messages(asked: McpRequest, given: ReadMessagesArguments) -> ToolResult:
    """Return messages from a position on, or the newest ones. Raises NotFound."""
    call, session_id = await asked.reach_session(given.session_id, "/messages"), session_id_of(given.session_id)
    found = await read_texts(call, session_id, given)
    shown = ReadMessagesOut.render(found)
    lines = [message_line(one) for one in found["messages"]]  # type: ignore[union-attr,arg-type]  # as `read_texts` made it
    return ToolResult(shown, ("\n\n".join(lines) or "There are no messages.",))


async def read_texts(call: Call, session_id: SessionId, given: ReadMessagesArguments) -> JsonDict:
    """Return messages in the shape of ReadMessagesOut."""
    first = given.from_position
    if first is None:
        query = MessageQuery(None, None, given.limit, "desc")
    else:
        query = MessageQuery(first - 1, None, given.limit, "asc")
    page = await call.services.database.messages.list_messages(call.owner_id, session_id, query)
    has_more = first is not None and page.next_cursor is not None
    messages: Sequence[Message] = page.items if first is not None else page.items[::-1]
    return {
        "session_id": str(session_id),
        "messages": [message_json(message, given.max_characters) for message in messages],
        "next_position": messages[-1].position + 1 if has_more else None,
    }


def message_json(message: Message, max_characters: int) -> JsonDict:
    """Return a message in the shape of ReadMessageOut."""
    text = text_of(message.content)
    return ReadMessageOut.render({
        "position": message.position,
        "role": message.role,
        "author": message.author,
        "created_at": message.created_at,
        "text": text[:max_characters],
        "is_cut": len(text) > max_characters,
        "tool": message.name if message.role is Role.TOOL else None,
        "called_tools": [call.name for call in message.tool_calls],
    })


def message_line(message: JsonDict) -> str:
    """Return a message of the shape ReadMessageOut as text for a model."""
    who = " ".join(str(part) for part in (message["role"], message["tool"] or message["author"]) if part)
    calls = "" if not message["called_tools"] else f" [calls {', '.join(map(str, message['called_tools']))}]"  # type: ignore[arg-type]  # a list of names
    cut = " …" if message["is_cut"] else ""
    return f"#{message['position']} {who}, {message['created_at']}: {message['text']}{cut}{calls}"


async def list_sessions(asked: McpRequest, given: ListSessionsArguments) -> ToolResult:
    """Return a page of the caller's sessions. Raises InvalidInput for a wrong cursor."""
    call = await asked.reach(Scope.READ, "GET", "/v1/sessions")
    query = SessionQuery(
        limit=given.limit,
        cursor=given.cursor,
        agent=None if given.agent is None else clean_text(given.agent),
        q=None if given.title is None else clean_text(given.title),
    )
    page = await call.services.database.sessions.list(call.owner_id, query)
    shown = ListedSessionsOut.render({"sessions": page.items, "next_cursor": page.next_cursor})
    lines = [
        f"{one.id} {one.title or '(no title)'}: {one.message_count} messages with {one.agent}, "
        f"{one.updated_at:%Y-%m-%d %H:%M}"
        for one in page.items
    ]
    return ToolResult(shown, ("\n".join(lines) or "There are no sessions.",))


async def get_context(asked: McpRequest, given: GetContextArguments) -> ToolResult:
    """Return the context report of a session. Raises NotFound."""
    call = await asked.reach_session(given.session_id, "/context")
    report = await call.services.report_context(call.owner_id, session_id_of(given.session_id))
    told = (
        f"{report.total_tokens} of {report.context_window} tokens ({report.usage_percent} %); a summary is due above "
        f"{report.threshold_tokens}. Next action: {report.next_action}."
    )
    return ToolResult(SessionContextOut.render(report), (told,))
