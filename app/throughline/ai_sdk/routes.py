"""Routes of the AI SDK's transports: send a chat, come back to its stream, stop it, and read the chat.

See https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol .
"""

from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import Field

from throughline.ai_sdk.begin_chat import begin_chat
from throughline.ai_sdk.chunks import ChunkPrinter
from throughline.ai_sdk.history import read_history
from throughline.ai_sdk.request import SendChat
from throughline.chat_protocols.continue_chat import find_session, join_run, name_session
from throughline.chat_protocols.stream_turn import stream_turn
from throughline.db.runs.list_runs import RunQuery
from throughline.db.sessions.find_session import ContinuedSession
from throughline.domain.errors import (
    ExternalIdTaken,
    OwnerQueueFull,
    QueueFull,
    RunNotWaiting,
    SessionBusy,
    ThroughlineError,
)
from throughline.domain.message import LAST_POSITION, clean_text
from throughline.domain.run import Run, RunStatus
from throughline.http.body import read_body
from throughline.http.call import Call, Reader, Writer
from throughline.http.documents import JSON, X_CLIENT, Json, described
from throughline.http.fields import QueryParameters
from throughline.http.follow import MEDIA_TYPE as EVENT_STREAM
from throughline.http.follow import nothing_more
from throughline.http.headers import KEY_HEADER
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse, error_problem, route_class_with_error_format
from throughline.http.route_errors import codes

TAG = "ai-sdk"
CHUNKS = {"type": "string", "description": "UIMessageChunks as JSON, and at the end `[DONE]`"}
STREAM: dict[int | str, Json] = {
    HTTPStatus.OK: {"description": "the answer, or what follows of it", "content": {EVENT_STREAM: {"schema": CHUNKS}}}
}
HISTORY: dict[int | str, Json] = {
    HTTPStatus.OK: {
        "description": "UIMessages as the AI SDK describes them",
        "content": {JSON: {"schema": {"type": "array", "items": {"type": "object"}}}},
    }
}


def _as_text(_request: Request, error: ThroughlineError) -> Response:
    """Return the error as its sentence alone: `useChat` shows the whole text. Status and headers are those of REST."""
    problem = error_problem(error)
    del problem.headers["Content-Type"], problem.headers["Content-Length"]
    return PlainTextResponse(error.detail, problem.status_code, problem.headers)


router = PrefixRouter(prefix="/ai-sdk", route_class=route_class_with_error_format(_as_text), tags=[TAG])


@router.post(
    "/{agent}",
    responses=STREAM,
    openapi_extra=described(
        body=SendChat,
        headers=(KEY_HEADER, X_CLIENT),
        errors=codes(SessionBusy, ExternalIdTaken, QueueFull, OwnerQueueFull, RunNotWaiting),
    ),
)
async def send_chat(request: Request, agent: str, call: Writer) -> Response:
    """Answer a chat's newest message, or go on with its last answer, as a stream of UIMessageChunks."""
    body = await read_body(request, SendChat)
    return _stream(call, await begin_chat(request, call, agent, body))


def _stream(call: Call, printer: ChunkPrinter) -> Response:
    return stream_turn(call, printer.turn, printer, {"x-vercel-ai-ui-message-stream": "v1"})


async def _find(call: Call, agent: str, chat_id: str) -> ContinuedSession | None:
    """Return the chat's session, None for a chat that has not begun. Raises NotFound (agent)."""
    call.services.agents.get(agent)
    return await find_session(call, name_session(clean_text(chat_id)))


async def _current_run(call: Call, agent: str, chat_id: str) -> Run | None:
    """Return the run of the chat that is being worked on, or else its newest; None without one."""
    found = await _find(call, agent, chat_id)
    if found is None:
        return None
    running = RunQuery(1, status=RunStatus.RUNNING)
    page = await call.services.database.runs.list_runs(call.owner_id, found.session.id, running)
    return page.items[0] if page.items else await _newest_run(call, found)


async def _newest_run(call: Call, found: ContinuedSession) -> Run | None:
    run_id = found.said[-1].run_id if found.said else None
    return None if run_id is None else await call.services.database.runs.get_run(call.owner_id, run_id)


@router.get(
    "/{agent}/{chat_id}/stream",
    responses={**STREAM, HTTPStatus.NO_CONTENT: {"description": "no answer is being written"}},
)
async def resume_chat(agent: str, chat_id: str, call: Reader) -> Response:
    """Stream the answer that is being written, from its beginning. Without one the answer is 204."""
    run = await _current_run(call, agent, chat_id)
    if run is None or not run.status.needs_worker:
        return nothing_more()
    return _stream(call, ChunkPrinter(call, join_run(run), str(run.id), sends_earlier_parts=True))


class ReadChat(QueryParameters):
    """A page of a chat: the newest messages before a position."""

    limit: int = Field(100, ge=1, le=200, description="stored messages to read; more up to the beginning of a turn")
    before: int | None = Field(None, ge=1, le=LAST_POSITION, description="`metadata.position` of a message")


@router.get("/{agent}/{chat_id}/messages", responses=HISTORY)
async def read_chat(agent: str, chat_id: str, call: Reader, query: Annotated[ReadChat, Query()]) -> Response:
    """Return the newest messages of the chat as UIMessages, oldest first; none of a chat that has not begun."""
    found = await _find(call, agent, chat_id)
    if found is None:
        return JsonResponse([])
    newest = await _newest_run(call, found)
    page = await read_history(call, found.session.id, before=query.before, limit=query.limit, newest=newest)
    return JsonResponse([*page])


@router.delete("/{agent}/{chat_id}/stream", status_code=HTTPStatus.NO_CONTENT)
async def stop_chat(agent: str, chat_id: str, call: Writer) -> Response:
    """Cancel the chat's turn that is being worked on, or else its newest, if it has not ended."""
    run = await _current_run(call, agent, chat_id)
    if run is not None and not run.status.is_final:
        await call.services.database.runs.request_cancel(call.owner_id, run.id)
    return Response(status_code=HTTPStatus.NO_CONTENT)
