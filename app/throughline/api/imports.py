"""Routes that export a session, and import an export or a conversation from elsewhere as a new session."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Literal, NoReturn, TypeAlias
from uuid import UUID

from fastapi import Query, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from starlette.responses import StreamingResponse

from throughline.db.reads import Reading, ReadRepositories
from throughline.db.sessions.import_messages import DatedMessage, Imported, ImportedConversation
from throughline.db.sessions.messages import MessageQuery
from throughline.db.sessions.quotations import MARKER, renumber_quotations
from throughline.domain.basic_types import JsonValue, Page, SessionId, UserId
from throughline.domain.errors import ExternalIdTaken, InvalidInput, NotFound
from throughline.domain.message import (
    LAST_POSITION,
    Content,
    ImageBlock,
    Message,
    NewMessage,
    Role,
    Source,
    TextBlock,
    ToolCall,
    clean_text,
)
from throughline.domain.reasoning import Reasoning, bounded_reasoning
from throughline.domain.session import MAX_EXTERNAL_ID, Session
from throughline.http.body import Body, is_json_lines, parse_json, read_body, read_bytes, validate
from throughline.http.call import Call, PathId, Reader, Writer, session_id_of, source_of
from throughline.http.documents import X_CLIENT, described, response_headers
from throughline.http.fields import (
    IMAGE_URL,
    MAX_BLOCKS,
    MAX_TITLE,
    STRICT,
    ExternalId,
    Metadata,
    QueryParameters,
    StorableTime,
    Title,
    check_external_id,
    content_kind,
)
from throughline.http.openai_messages import MAX_CALLS, MAX_MESSAGES, ImportedMessage, read_messages
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse, json_bytes
from throughline.http.route_errors import InvalidRequest, MalformedBody, codes
from throughline.wire.data_age import DATA_AS_OF, age_headers
from throughline.wire.json_shape import JsonDict
from throughline.wire.messages import ExportedMessage, MessageOut
from throughline.wire.sessions import SessionOut

MEDIA_TYPE = "application/x-ndjson"
PAGE_MESSAGES = 200
export_router = PrefixRouter(prefix="/v1/sessions/{session_id}/export", tags=["sessions"])


@export_router.get(
    "",
    responses={
        HTTPStatus.OK: {
            "description": "one JSON object a line",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
            "headers": response_headers("Content-Disposition", DATA_AS_OF),
        }
    },
)
async def export_session(session_id: PathId, call: Reader) -> StreamingResponse:
    """Return a session and all its messages as JSON Lines.

    The first object has the `type` `session`, all others `message`. A complete export has at least as many messages as
    its first line says.
    """
    owner_id, wanted = call.owner_id, session_id_of(session_id)
    reading = call.services.database.reads.begin()
    session = await reading.run(lambda each: each.sessions.get(owner_id, wanted))
    name = {"Content-Disposition": f'attachment; filename="{session.id}.jsonl"'}
    headers = {**name, **age_headers(reading.tell_age())}
    return StreamingResponse(_lines(owner_id, session, reading), media_type=MEDIA_TYPE, headers=headers)


async def _lines(owner_id: UserId, session: Session, reading: Reading) -> AsyncGenerator[bytes]:
    """Yield the lines of an export. No database connection is held while the client reads a page.

    If a replica fails, the primary goes on behind the last message.
    """
    yield _line("session", SessionOut.render(session))
    after: int | None = None
    while True:
        query = MessageQuery(after=after, limit=PAGE_MESSAGES, reasoning="shown")
        page = await reading.run(partial(_read_page, owner_id, session.id, query))
        for message in page.items:
            yield _line("message", _rendered(message))
        if page.next_cursor is None:
            return
        after = int(page.next_cursor)


async def _read_page(
    owner_id: UserId, session_id: SessionId, query: MessageQuery, repositories: ReadRepositories
) -> Page[Message]:
    return await repositories.messages.list_messages(owner_id, session_id, query)


def _rendered(message: Message) -> JsonDict:
    shown = ExportedMessage.render(message)
    return shown if message.reasoning is not None else {name: shown[name] for name in MessageOut.model_fields}


def _line(kind: str, item: JsonDict) -> bytes:
    return json_bytes({"type": kind, **item}) + b"\n"


class ImportSession(BaseModel):
    """A conversation in OpenAI's message format, to be continued as a session."""

    model_config = STRICT

    agent: str = Field(min_length=1, max_length=100, examples=["assistant"])
    title: Title = ""
    metadata: Metadata = Field(default_factory=dict)
    external_id: ExternalId | None = None
    messages: list[ImportedMessage] = Field(max_length=MAX_MESSAGES, json_schema_extra={"minItems": 1})


def from_openai(body: ImportSession, source: Source) -> ImportedConversation:
    """Return the conversation, without system and developer messages.

    Raises InvalidInput if a tool message has no `tool_call_id`. Tool results without a matching call are stored
    unchanged and never sent to a model.
    """
    _, messages = read_messages(body.messages, source)
    dated = tuple(DatedMessage(message) for message in messages)
    return ImportedConversation(body.agent, body.title, body.metadata, dated, body.external_id)


# Import of the service's own export: JSON Lines, the session first and then its messages. All lines are checked before
# any is stored. The exported session's ids, positions, runs and pins are not taken over. The messages are linked to
# their originals, if these are the user's own, so that their redaction can name the import. If lines were removed from
# the export, later messages get lower positions. Positions in quotations by recall tools are then renumbered, because a
# redaction finds quotations by position.

MAX_NAME = 1_000
WRITTEN = ConfigDict(extra="ignore", strict=True, frozen=True)
"""Configuration of the models for exported lines. Fields that a new session does not take over are ignored."""

Line: TypeAlias = tuple[int, bytes]
SourceName: TypeAlias = Literal["web", "slack", "worker", "cli", "api"]
MarkedName: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]


class SessionLine(BaseModel):
    """The first line of an export: the session."""

    model_config = WRITTEN

    type: Literal["session"]
    id: str = ""
    agent: str = Field(min_length=1, max_length=100)
    title: Title = ""
    external_id: ExternalId | None = None
    metadata: Metadata = Field(default_factory=dict)
    message_count: int = Field(0, ge=0)


class LineText(BaseModel):
    """A text block of an exported message."""

    model_config = WRITTEN

    type: Literal["text"]
    text: str


class LineImage(BaseModel):
    """An image block of an exported message."""

    model_config = WRITTEN

    type: Literal["image"]
    url: str = Field(pattern=IMAGE_URL)
    detail: Literal["auto", "low", "high"] = "auto"


class LineCall(BaseModel):
    """A tool call of an exported message."""

    model_config = WRITTEN

    id: MarkedName
    name: MarkedName
    arguments: str


LineBlock: TypeAlias = Annotated[LineText | LineImage, Field(discriminator="type")]
LineBlocks: TypeAlias = Annotated[list[LineBlock], Field(min_length=1, max_length=MAX_BLOCKS)]


class MessageLine(BaseModel):
    """A message of an export: every line but the first."""

    model_config = WRITTEN

    type: Literal["message"]
    role: Literal["user", "assistant", "tool"]
    content: Annotated[
        Annotated[str, Tag("(text)")] | Annotated[LineBlocks, Tag("(blocks)")], Discriminator(content_kind)
    ]
    position: int = Field(0, ge=0, le=LAST_POSITION)
    tool_calls: list[LineCall] = Field(default_factory=list, max_length=MAX_CALLS)
    tool_call_id: MarkedName | None = None
    name: str | None = Field(None, max_length=MAX_NAME)
    author: str | None = Field(None, max_length=200)
    source: SourceName | None = None
    created_at: StorableTime | None = None
    metadata: Metadata = Field(default_factory=dict)
    reasoning: str | None = None


def from_lines(body: bytes, source: Source) -> ImportedConversation:
    """Return the exported conversation. `source` is used for messages without a source of their own.

    Raises InvalidInput that names the first wrong line.
    """
    lines = [(number, line) for number, line in enumerate(body.split(b"\n"), start=1) if line.strip()]
    if not lines:
        raise InvalidInput("The body is empty. Send an export: the session's line, then its messages.")
    first, *rest = lines
    session = _read_line(first, SessionLine)
    if len(rest) > MAX_MESSAGES:
        _refuse(rest[MAX_MESSAGES][0], "", f"An import may have at most {MAX_MESSAGES:,} messages.")
    messages = _messages(rest, source)
    if len(messages) < session.message_count:
        _refuse(
            first[0],
            "message_count",
            f"Is {session.message_count:,}, but the number of messages is {len(messages):,}: the export was cut off. "
            "Export again.",
        )
    return ImportedConversation(
        agent=session.agent,
        title=session.title,
        metadata=session.metadata,
        messages=tuple(messages),
        external_id=session.external_id,
        exported_id=_exported_id(session.id),
    )


def _messages(lines: Sequence[Line], source: Source) -> list[DatedMessage]:
    """Return the messages, with their quotations renumbered to the new positions."""
    reads = list(_in_order(lines))
    positions = {read.position: place for place, (_, read) in enumerate(reads, start=1) if read.position}
    return [
        DatedMessage(
            renumber_quotations(_message(number, read, source), positions),
            read.created_at,
            counts=not _is_redacted(read),
            exported_position=read.position or None,
        )
        for number, read in reads
    ]


def _exported_id(text: str) -> SessionId | None:
    """Return the exported session's id; None if the text is none, because an export may be edited."""
    try:
        return SessionId(UUID(text))
    except ValueError:
        return None


def _read_line(line: Line, model: type[Body]) -> Body:
    number, text = line
    try:
        return validate(parse_json(text), model)
    except MalformedBody as error:
        _refuse(number, "", error.detail.replace("The body", "It"))
    except InvalidRequest as error:
        _refuse(number, error.errors[0].field, error.errors[0].detail.replace("body", "line"))


def _in_order(lines: Sequence[Line]) -> Iterator[tuple[int, MessageLine]]:
    """Yield each line's number and message. Raises InvalidInput unless the positions, if given, increase."""
    last = 0
    for number, line in lines:
        read = _read_line((number, line), MessageLine)
        if 0 < read.position <= last:
            _refuse(number, "position", f"{read.position} does not come after {last}: the lines are not in order.")
        last = read.position or last
        yield number, read


def _message(number: int, line: MessageLine, source: Source) -> NewMessage:
    _check_calls(number, line)
    is_tool = line.role == "tool"
    return NewMessage(
        role=Role(line.role),
        content=_content(line.content),
        source=source if line.source is None else Source(line.source),
        tool_calls=tuple(ToolCall(call.id, call.name, call.arguments) for call in line.tool_calls),
        tool_call_id=line.tool_call_id if is_tool else None,
        name=line.name if is_tool else None,
        author=line.author,
        metadata=line.metadata,
        reasoning=_reasoning(line),
    )


def _reasoning(line: MessageLine) -> Reasoning | None:
    return Reasoning(bounded_reasoning(line.reasoning)) if line.reasoning and line.role == "assistant" else None


def _check_calls(number: int, line: MessageLine) -> None:
    if line.role == "tool" and line.tool_call_id is None:
        _refuse(number, "tool_call_id", "A tool message needs the id of the call that it answers.")
    if line.tool_calls and line.role != "assistant":
        _refuse(number, "tool_calls", "Only assistant messages may have tool calls.")


def _content(given: str | list[LineBlock]) -> Content:
    if isinstance(given, str):
        return given
    return tuple(
        TextBlock(block.text) if isinstance(block, LineText) else ImageBlock(block.url, block.detail) for block in given
    )


def _is_redacted(line: MessageLine) -> bool:
    """Return whether the exported message is redacted. It stays so: a marker whose tokens are not counted."""
    redacted: JsonValue = line.metadata.get("redacted")
    return redacted is True and line.content == MARKER


def _refuse(number: int, field: str, detail: str) -> NoReturn:
    place = f"Line {number}, {field}" if field else f"Line {number}"
    raise InvalidInput(f"{place}: {detail}", field=f"line.{number}.{field}".rstrip("."))


NOTHING_TO_IMPORT = (
    "There is nothing to import: a session needs at least one message of a user, an assistant or a tool. System "
    "and developer messages are not imported, because the agent has its own prompt."
)
router = PrefixRouter(prefix="/v1/sessions/import", tags=["sessions"])
DESCRIBED = described(body=ImportSession, headers=(X_CLIENT,), errors=codes(NotFound, ExternalIdTaken))
DESCRIBED["requestBody"]["content"][MEDIA_TYPE] = {"schema": {"type": "string", "description": "an export, as it is"}}


class ImportOptions(QueryParameters):
    """Values of the new session that replace those in the body."""

    agent: str | None = Field(None, min_length=1, max_length=100)
    title: str | None = Field(None, max_length=MAX_TITLE)
    external_id: Annotated[str, AfterValidator(check_external_id)] | None = Field(
        None, max_length=MAX_EXTERNAL_ID, description="empty: the session gets none"
    )


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses={HTTPStatus.CREATED: {"model": SessionOut, "headers": response_headers("Location")}},
    openapi_extra=DESCRIBED,
)
async def import_session(request: Request, call: Writer, asked: Annotated[ImportOptions, Query()]) -> Response:
    """Store a conversation in OpenAI's message format, or an export, as a new session; no model is called.

    An export is sent as `application/x-ndjson`. Its messages keep their times; ids, runs and pins are not taken over.
    """
    given = await _read(request, source_of(request, call))
    if not given.messages:
        raise InvalidInput(NOTHING_TO_IMPORT, field="messages")
    agent = call.services.agents.get(given.agent if asked.agent is None else clean_text(asked.agent))
    new = Imported(
        owner_id=call.owner_id,
        agent=agent.name,
        title=given.title if asked.title is None else clean_text(asked.title),
        source=source_of(request, call),
        metadata=given.metadata,
        external_id=given.external_id if asked.external_id is None else clean_text(asked.external_id) or None,
        exported_id=given.exported_id,
    )
    counted = await _counted(call, agent.name, given.messages)
    session = await call.services.database.sessions.import_conversation(new, counted)
    return JsonResponse(SessionOut.render(session), HTTPStatus.CREATED, {"Location": f"/v1/sessions/{session.id}"})


async def _read(request: Request, source: Source) -> ImportedConversation:
    if is_json_lines(request):
        return from_lines(await read_bytes(request), source)
    return from_openai(await read_body(request, ImportSession), source)


async def _counted(call: Call, agent: str, given: Sequence[DatedMessage]) -> list[DatedMessage]:
    """Return the messages with their tokens counted; those that do not count keep 0."""
    counted = iter(await call.services.count_messages(agent, [dated.message for dated in given if dated.counts]))
    return [replace(dated, message=next(counted)) if dated.counts else dated for dated in given]
