"""Route of OpenAI's chat completions. A completion is one part of a run.

See https://platform.openai.com/docs/api-reference/chat/create .
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import structlog
from fastapi import Request, Response

from throughline.chat_protocols.continue_chat import ChatTurn
from throughline.chat_protocols.follow_part import echo_of, follow_part, wait_for_end
from throughline.chat_protocols.request_run import RequestRun
from throughline.domain.errors import ApprovalRequired, ThroughlineError
from throughline.domain.events import Event, MessageCompleted, MessageDelta, RunEnded, RunWaiting, ToolCallDelta
from throughline.domain.run import RunStatus
from throughline.http.call import Call, Writer
from throughline.http.documents import described
from throughline.http.follow import STREAM_HEADERS, EventStream
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse, json_line
from throughline.openai.chat.begin_chat import SESSION_HEADER, begin_chat
from throughline.openai.chat.chunks import ChatAnswer, ChatChunks, answer_of, completion_json, is_structured
from throughline.openai.chat.request import UNSUPPORTED, CreateCompletion
from throughline.openai.errors import OPENAI, OpenAIRoute, TurnFailed, error_json, failure_of
from throughline.openai.output_items import JsonDict
from throughline.openai.read_request import not_applied_headers, read_request
from throughline.openai.response_object import final_response, response_in_progress
from throughline.openai.responses.stream import END

HEARTBEAT = b": heartbeat\n"
"""Comment that keeps a connection open. It ends without a blank line, because some readers take that for an event."""


@dataclass(frozen=True, slots=True)
class ChatStream:
    """A completion to stream.

    `first` were read already and come before `followed`. `finish` returns the answer once the part is over, or raises
    why there is none. `closed` is called at the end, however the stream ends.
    """

    chunks: ChatChunks
    followed: AsyncGenerator[Event | None]
    first: tuple[Event | None, ...]
    finish: Callable[[RunEnded | RunWaiting], Awaitable[ChatAnswer]]
    closed: Callable[[], None]


def stream_chat(call: Call, stream: ChatStream, headers: Mapping[str, str]) -> Response:
    """Return the HTTP response that streams the completion."""
    timeout = call.config.send_timeout_seconds
    return EventStream(_encoded(stream), {**STREAM_HEADERS, **headers}, send_timeout_seconds=timeout)


async def _encoded(stream: ChatStream) -> AsyncGenerator[bytes]:
    """Yield the stream's bytes. An error is sent as a chunk, which OpenAI's clients raise."""
    try:
        async with aclosing(_events(stream)) as events:
            async for event in events:
                yield await _shown(stream, event)
    except TurnFailed as failed:
        yield _chunk_bytes({"error": error_json(failed.error.type, failed.detail)})
    except ThroughlineError as error:
        log.warning("completion stream ended by an error", error=error.code)
        yield _chunk_bytes({"error": error_json(error.code, error.detail)})
    finally:
        stream.closed()
    yield END


async def _events(stream: ChatStream) -> AsyncGenerator[Event | None]:
    async with aclosing(stream.followed) as followed:
        for event in stream.first:
            yield event
        async for event in followed:
            yield event


async def _shown(stream: ChatStream, event: Event | None) -> bytes:
    """Return the chunks that follow from one event, b"" for none; a heartbeat if nothing happened."""
    if event is None:
        return HEARTBEAT
    if isinstance(event, RunEnded | RunWaiting):
        return b"".join(map(_chunk_bytes, stream.chunks.end(await stream.finish(event))))
    return b"".join(map(_chunk_bytes, stream.chunks.feed(event)))


def _chunk_bytes(chunk: JsonDict) -> bytes:
    return b"data: %s\n\n" % json_line(chunk)


log = structlog.get_logger(__name__)


RUN_HEADER = "X-Run-Id"
SHOWN = (MessageDelta, MessageCompleted, ToolCallDelta, RunEnded, RunWaiting)
"""Events of which a stream shows something."""

router = PrefixRouter(prefix="/v1/chat/completions", route_class=OpenAIRoute, tags=[OPENAI])


@router.post("", openapi_extra=described(body=CreateCompletion))
async def create_completion(request: Request, call: Writer) -> Response:
    """Ask an agent, in OpenAI's form. Nothing is kept unless the request names a session, or says `store`."""
    body = await read_request(request, CreateCompletion, UNSUPPORTED)
    begun = await begin_chat(request, call, body)
    run = begun.followed.run
    headers = {RUN_HEADER: str(run.id), **not_applied_headers(echo_of(run, begun.part))}
    if begun.is_stored:
        headers[SESSION_HEADER] = str(run.session_id)
    bound = RequestRun(call, run, begun.ends_with_client)
    if body.stream:
        stream = await _open_stream(call, begun, bound, includes_usage=body.includes_usage)
        return stream_chat(call, stream, headers)
    try:
        answer = await _finish(call, begun, bound, await _wait(request, call, begun))
    finally:
        bound.close()
    return JsonResponse(completion_json(answer), headers=headers)


async def _wait(request: Request, call: Call, begun: ChatTurn) -> RunEnded | RunWaiting:
    if begun.followed.run.status.needs_worker:
        return await wait_for_end(request, call, begun.followed)
    return await call.services.database.followed_runs.ending(begun.followed.run)


async def _finish(call: Call, begun: ChatTurn, bound: RequestRun, ended: RunEnded | RunWaiting) -> ChatAnswer:
    """Return the answer of the part that has ended.

    Raises TurnFailed for a failed or cancelled run, ApprovalRequired if nobody could give the approval that it needs.
    """
    bound.has_ended = isinstance(ended, RunEnded)
    if isinstance(ended, RunEnded) and ended.run.status is not RunStatus.SUCCEEDED:
        raise TurnFailed(failure_of(ended.run))
    answer = answer_of(await final_response(call, begun.followed, ended, begun.part))
    if answer.approvals and not begun.is_stored:
        names = ", ".join(approval.name for approval in answer.approvals)
        raise ApprovalRequired(
            f"The agent {ended.run.agent!r} needs a person's approval to call {names}, and a request that names no "
            "session leaves no way to give it. Name a session with `metadata.session_id`."
        )
    return answer


async def _open_stream(call: Call, begun: ChatTurn, bound: RequestRun, *, includes_usage: bool) -> ChatStream:
    """Return the stream once there is something to show, or nothing has happened for a while.

    A turn that fails before that raises its error, so that the client gets its HTTP status.
    """
    finish = partial(_finish, call, begun, bound)
    followed = _follow(call, begun)
    try:
        response = await response_in_progress(call, begun.followed, begun.part)
        chunks = ChatChunks(response, is_structured=is_structured(response.run), includes_usage=includes_usage)
        first = await _until_shown(followed)
        if first and isinstance(first[-1], RunEnded | RunWaiting):
            await finish(first[-1])
    except BaseException:
        bound.close()
        await followed.aclose()
        raise
    return ChatStream(chunks, followed, first, finish, bound.close)


async def _until_shown(followed: AsyncGenerator[Event | None]) -> tuple[Event | None, ...]:
    first: list[Event | None] = []
    async for event in followed:
        first.append(event)
        if event is None or isinstance(event, SHOWN):
            break
    return tuple(first)


async def _follow(call: Call, begun: ChatTurn) -> AsyncGenerator[Event | None]:
    """Yield the events of the part; of one that is over already, only the last."""
    if not begun.followed.run.status.needs_worker:
        yield await call.services.database.followed_runs.ending(begun.followed.run)
        return
    async with aclosing(follow_part(call, begun.followed)) as followed:
        async for event in followed:
            yield event
