"""Routes for messages: read the history, redact a message, and send one.

The answer to a sent message is JSON at its end, an event stream, or 202 at once.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from throughline.api.http.admitted_request import Call, Reader, Writer, message_id_of, session_id_of, source_of
from throughline.api.http.body import read_body
from throughline.api.http.follow import follow_run, stopping, stream_or_refuse
from throughline.api.http.headers import REPLAYED, prefers_stream, read_idempotency
from throughline.api.http.problem_documents import error_problem
from throughline.api.http.request_errors import StreamAborted
from throughline.api.http.responses import JsonResponse
from throughline.api.http.sse import MEDIA_TYPE, RunStream
from throughline.api.native.citations import render_cited
from throughline.api.native.documented import IDEMPOTENCY_HEADER, header, json_body
from throughline.api.native.events import render_event, turn_problem
from throughline.api.native.query_parameters import ListMessages
from throughline.api.native.requests import SendMessage
from throughline.db.sessions.messages import MessageQuery
from throughline.db.sessions.redaction import Redaction
from throughline.domain.errors import TemporaryError
from throughline.domain.events import RunEnded
from throughline.domain.message import Message, Role, text_of
from throughline.domain.run import RunInput, RunStatus
from throughline.domain.submission import OnBusy, Submission, Submitted
from throughline.turn.follow_run import Followed, Idle
from throughline.wire.events import ending_json
from throughline.wire.messages import CitedMessageOut, MessageOut, MessagePage
from throughline.wire.runs import Accepted, TurnOut, run_json

router = APIRouter(prefix="/v1/sessions/{session_id}/messages", tags=["messages"])
PREFER = header("Prefer", "`respond-async`: answer 202 at once; other values are ignored")


@router.get("", responses={HTTPStatus.OK: {"model": MessagePage}})
async def list_messages(session_id: str, call: Reader, asked: Annotated[ListMessages, Query()]) -> Response:
    """Return messages of the session's full history, including those that a summary covers."""
    found, (after, before) = session_id_of(session_id), asked.bounds()
    query = MessageQuery(after, before, asked.limit, asked.order, asked.reasoning(reads_all=call.is_operator))
    page = await call.services.database.messages.list_messages(call.owner_id, found, query)
    messages = await render_cited(call, found, page.items, CitedMessageOut, _citing_text)
    return JsonResponse({"data": messages, "next_cursor": page.next_cursor})


@router.post(
    "",
    responses={
        HTTPStatus.OK: {"model": TurnOut, "content": {MEDIA_TYPE: {}}},
        HTTPStatus.ACCEPTED: {"model": Accepted},
        **{status: {"description": "the turn failed; `run` says how"} for status in (429, 502, 504)},
    },
    openapi_extra={**json_body(SendMessage), "parameters": [IDEMPOTENCY_HEADER, PREFER]},
)
async def send_message(request: Request, session_id: str, call: Writer) -> Response:
    """Send a message. If the client disconnects, the turn continues, and its run can be queried."""
    submitted = await call.services.submit(await _read_submission(request, session_id, call))
    run = submitted.run
    if _prefers_async(request):
        shown = run_json(run, for_operator=call.is_operator)
        headers = {"Location": f"/v1/runs/{run.id}", "Preference-Applied": "respond-async"}
        response: Response = JsonResponse({"run": shown}, HTTPStatus.ACCEPTED, headers)
    elif prefers_stream(request.headers.getlist("accept")):
        response = await _stream(request, call, submitted)
    else:
        response = await _answer(request, call, submitted)
    if submitted.replayed:
        response.headers[REPLAYED] = "true"
    return response


@router.post("/{message_id}/redact", responses={HTTPStatus.OK: {"model": MessageOut}})
async def redact_message(session_id: str, message_id: str, call: Writer) -> Response:
    """Replace a message's text by a marker permanently, and delete everything that was made from the text.

    Refused (409) while a turn of the session is not finished.
    """
    wanted = Redaction(call.owner_id, session_id_of(session_id), message_id_of(message_id), call.principal.actor)
    return JsonResponse(MessageOut.render(await call.services.database.messages.redact(wanted)))


def _citing_text(message: Message) -> str:
    """Return the text in which citations are searched: that of an assistant's message, '' for other roles."""
    return text_of(message.content) if message.role is Role.ASSISTANT else ""


async def _read_submission(request: Request, session_id: str, call: Call) -> Submission:
    found = session_id_of(session_id)
    body = await read_body(request, SendMessage)
    idempotency = read_idempotency(request, body)
    overrides = body.read_overrides()
    await call.services.check_overrides(call.owner_id, found, overrides)
    return Submission(
        owner_id=call.owner_id,
        session_id=found,
        input=RunInput(body.as_content(), body.metadata, overrides),
        source=source_of(request, call),
        author=call.principal.user_name,
        actor=call.principal.actor,
        idempotency_key=idempotency.key,
        fingerprint=idempotency.fingerprint,
        on_busy=OnBusy(body.on_busy),
    )


def _prefers_async(request: Request) -> bool:
    stated = ",".join(request.headers.getlist("prefer"))
    return any(part.partition(";")[0].strip().lower() == "respond-async" for part in stated.split(","))


def _is_fresh(submitted: Submitted) -> bool:
    """Return whether this process has just started the run, so that none of its events can be stored yet."""
    return submitted.claimed is not None and submitted.claimed.next_event == 1


async def _answer(request: Request, call: Call, submitted: Submitted) -> Response:
    """Wait for the end of the run and return its answer, or the problem with which it ended."""
    run = submitted.run
    if run.status.is_final:
        ended = await call.services.database.followed_runs.ending(run)
    else:
        try:
            ended = await _wait(request, call, submitted)
        except TemporaryError as error:
            return error_problem(error, run_id=str(run.id))
    if ended.run.status is not RunStatus.SUCCEEDED:
        return turn_problem(ended, for_operator=call.is_operator)
    return JsonResponse(ending_json(ended), headers={"Content-Location": f"/v1/runs/{run.id}"})


async def _wait(request: Request, call: Call, submitted: Submitted) -> RunEnded:
    with suppress(StreamAborted):
        async with aclosing(_follow(call, submitted)) as followed:
            ended = await _first_end(request, followed)
            if ended is not None:
                return ended
    raise stopping(submitted.run)


async def _first_end(request: Request, followed: AsyncGenerator[Followed]) -> RunEnded | None:
    """Return the run's last event, None if the client disconnected before it. Raises NoWorkerAvailable."""
    async for item in followed:
        if isinstance(item, Idle):
            if await request.is_disconnected():
                return None
        elif isinstance(item[-1].event, RunEnded):
            return item[-1].event
    return None


async def _stream(request: Request, call: Call, submitted: Submitted) -> Response:
    return await stream_or_refuse(request, call, RunStream(submitted.run, _follow(call, submitted), render_event))


def _follow(call: Call, submitted: Submitted) -> AsyncGenerator[Followed]:
    return follow_run(call, submitted.run, is_fresh=_is_fresh(submitted))
