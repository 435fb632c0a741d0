"""Route of OpenAI's chat completions. A completion is one part of a run.

See https://platform.openai.com/docs/api-reference/chat/create .
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from fastapi import APIRouter, Request, Response

from throughline.api.http.admitted_request import Call, Writer
from throughline.api.http.responses import JsonResponse
from throughline.api.native.documented import described
from throughline.api.openai.begin_chat import begin_chat
from throughline.api.openai.begun_chat import BegunChat
from throughline.api.openai.bound_run import BoundRun
from throughline.api.openai.chat_chunks import ChatChunks
from throughline.api.openai.chat_names import SESSION_HEADER
from throughline.api.openai.chat_object import ChatAnswer, answer_of, completion_json, is_structured
from throughline.api.openai.chat_request import UNSUPPORTED, CreateCompletion
from throughline.api.openai.errors import OPENAI, OpenAIRoute, TurnFailed, failure_of
from throughline.api.openai.follow_part import follow_part, wait_for_end
from throughline.api.openai.not_applied import not_applied_headers
from throughline.api.openai.read_request import read_request
from throughline.api.openai.read_response import begun_response, ended_response
from throughline.api.openai.response_object import echo_of
from throughline.api.openai.stream_chat import ChatStream, stream_chat
from throughline.domain.errors import ApprovalRequired
from throughline.domain.events import Event, MessageCompleted, MessageDelta, RunEnded, RunWaiting, ToolCallDelta
from throughline.domain.run import RunStatus

RUN_HEADER = "X-Run-Id"
SHOWN = (MessageDelta, MessageCompleted, ToolCallDelta, RunEnded, RunWaiting)
"""Events of which a stream shows something."""

router = APIRouter(prefix="/v1/chat/completions", route_class=OpenAIRoute, tags=[OPENAI])


@router.post("", openapi_extra=described(body=CreateCompletion))
async def create_completion(request: Request, call: Writer) -> Response:
    """Ask an agent, in OpenAI's form. Nothing is kept unless the request names a session, or says `store`."""
    body = await read_request(request, CreateCompletion, UNSUPPORTED)
    begun = await begin_chat(request, call, body)
    run = begun.followed.run
    headers = {RUN_HEADER: str(run.id), **not_applied_headers(echo_of(run, begun.part))}
    if begun.is_stored:
        headers[SESSION_HEADER] = str(run.session_id)
    bound = BoundRun(call, run, begun.ends_with_client)
    if body.stream:
        stream = await _open_stream(call, begun, bound, includes_usage=body.includes_usage)
        return stream_chat(call, stream, headers)
    try:
        answer = await _finish(call, begun, bound, await _wait(request, call, begun))
    finally:
        bound.close()
    return JsonResponse(completion_json(answer), headers=headers)


async def _wait(request: Request, call: Call, begun: BegunChat) -> RunEnded | RunWaiting:
    if begun.followed.run.status.needs_worker:
        return await wait_for_end(request, call, begun.followed)
    return await call.services.database.followed_runs.ending(begun.followed.run)


async def _finish(call: Call, begun: BegunChat, bound: BoundRun, ended: RunEnded | RunWaiting) -> ChatAnswer:
    """Return the answer of the part that has ended.

    Raises TurnFailed for a failed or cancelled run, ApprovalRequired if nobody could give the approval that it needs.
    """
    bound.has_ended = isinstance(ended, RunEnded)
    if isinstance(ended, RunEnded) and ended.run.status is not RunStatus.SUCCEEDED:
        raise TurnFailed(failure_of(ended.run))
    answer = answer_of(await ended_response(call, begun.followed, ended, begun.part))
    if answer.approvals and not begun.is_stored:
        names = ", ".join(approval.name for approval in answer.approvals)
        raise ApprovalRequired(
            f"The agent {ended.run.agent!r} needs a person's approval to call {names}, and a request that names no "
            "session leaves no way to give it. Name a session with `metadata.session_id`."
        )
    return answer


async def _open_stream(call: Call, begun: BegunChat, bound: BoundRun, *, includes_usage: bool) -> ChatStream:
    """Return the stream once there is something to show, or nothing has happened for a while.

    A turn that fails before that raises its error, so that the client gets its HTTP status.
    """
    finish = partial(_finish, call, begun, bound)
    followed = _follow(call, begun)
    try:
        response = await begun_response(call, begun.followed, begun.part)
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


async def _follow(call: Call, begun: BegunChat) -> AsyncGenerator[Event | None]:
    """Yield the events of the part; of one that is over already, only the last."""
    if not begun.followed.run.status.needs_worker:
        yield await call.services.database.followed_runs.ending(begun.followed.run)
        return
    async with aclosing(follow_part(call, begun.followed)) as followed:
        async for event in followed:
            yield event
