"""Messages: the history, and sending one: waiting for the answer, streaming it, or leaving it to come."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.api.accept import prefers_stream
from app.api.body import read_body
from app.api.call import Call, Reader, Writer, session_id_of, source_of
from app.api.documented import IDEMPOTENCY_HEADER, header, json_body
from app.api.errors import error_problem, turn_problem
from app.api.follow import Followed, Idle, ending_of, follow_run
from app.api.idempotency import REPLAYED, read_idempotency
from app.api.patience import follow_patiently
from app.api.refusals import ServiceStopping, StreamAborted
from app.api.requests import ListMessages, SendMessage
from app.api.responses import JsonResponse
from app.api.schemas import Accepted, MessagePage, TurnOut
from app.api.sse import MEDIA_TYPE, stream_run
from app.db.messages import MessageQuery
from app.domain.errors import TemporaryError
from app.domain.events import EventType
from app.domain.json_types import JsonObject
from app.domain.run import OnBusy, Run, RunInput, RunStatus, Submission, Submitted
from app.domain.wire import message_json, run_json

router = APIRouter(prefix="/v1/sessions/{session_id}/messages", tags=["messages"])
PREFER = header("Prefer", "`respond-async`: answer 202 at once; anything else is ignored")


@router.get("", responses={HTTPStatus.OK: {"model": MessagePage}})
async def list_messages(session_id: str, call: Reader, asked: Annotated[ListMessages, Query()]) -> Response:
    """Return the full history, always: what a summary stands for is here too."""
    after, before = asked.bounds()
    page = await call.services.database.messages.list_messages(
        call.owner_id,
        session_id_of(session_id),
        MessageQuery(after=after, before=before, limit=asked.limit, order=asked.order),
    )
    return JsonResponse({"data": [message_json(item) for item in page.items], "next_cursor": page.next_cursor})


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
    """Send a message. A client that goes away changes nothing: the turn goes on, its run can be asked for."""
    submitted = await call.services.submit(await _read_submission(request, session_id, call))
    run = submitted.run
    if _prefers_async(request):
        headers = {"Location": f"/v1/runs/{run.id}", "Preference-Applied": "respond-async"}
        response: Response = JsonResponse({"run": run_json(run)}, HTTPStatus.ACCEPTED, headers)
    elif prefers_stream(request.headers.getlist("accept")):
        response = await _stream(request, call, submitted)
    else:
        response = await _answer(request, call, submitted)
    if submitted.replayed:
        response.headers[REPLAYED] = "true"
    return response


async def _read_submission(request: Request, session_id: str, call: Call) -> Submission:
    found = session_id_of(session_id)
    body = await read_body(request, SendMessage)
    idempotency = read_idempotency(request, body)
    return Submission(
        owner_id=call.owner_id,
        session_id=found,
        input=RunInput(body.as_content(), body.metadata),
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
    """Whether this process has just begun the run, so that no event of it can be stored yet."""
    return submitted.claimed is not None and submitted.claimed.next_event == 1


async def _answer(request: Request, call: Call, submitted: Submitted) -> Response:
    """Wait for the end of the run and return the answer, or the problem the run ended with."""
    run = submitted.run
    if run.status.is_final:
        event_type, data = await ending_of(call, run)
    else:
        try:
            event_type, data = await _wait(request, call, submitted)
        except TemporaryError as error:
            return error_problem(error, run_id=str(run.id))
    if event_type is not EventType.RUN_COMPLETED:
        return turn_problem(event_type, data)
    return JsonResponse(dict(data), headers={"Content-Location": f"/v1/runs/{run.id}"})


async def _wait(request: Request, call: Call, submitted: Submitted) -> tuple[EventType, JsonObject]:
    with suppress(StreamAborted):
        async with aclosing(_follow(call, submitted)) as followed:
            ended = await _first_end(request, followed)
            if ended is not None:
                return ended
    raise _stopping(submitted.run)


async def _first_end(request: Request, followed: AsyncGenerator[Followed]) -> tuple[EventType, JsonObject] | None:
    """Return the end of the run; None where the client went away meanwhile. Raises NoWorkerAvailable."""
    async for news in followed:
        if isinstance(news, Idle):
            if await request.is_disconnected():
                return None
        elif news[-1].type.is_last:
            return news[-1].type, news[-1].data
    return None


async def _stream(request: Request, call: Call, submitted: Submitted) -> Response:
    """Stream the run. While it waits for a worker the answer is not begun, so that it can still be a problem."""
    run, followed = submitted.run, _follow(call, submitted)
    first: tuple[Followed, ...] = ()
    if run.status is RunStatus.QUEUED and not await call.services.database.runs.is_behind_running(run.id):
        try:
            first = await _first_sign(request, followed)
        except TemporaryError as error:
            return error_problem(error, run_id=str(run.id))
        except StreamAborted:
            return error_problem(_stopping(run), run_id=str(run.id))
    return stream_run(call, run, followed, first=first)


async def _first_sign(request: Request, followed: AsyncGenerator[Followed]) -> tuple[Followed, ...]:
    """Return the first news that show a run at work, or nobody who asks any more. Raises NoWorkerAvailable."""
    async for news in followed:
        if not isinstance(news, Idle) or news.run.status is not RunStatus.QUEUED or await request.is_disconnected():
            return (news,)
    return ()


def _follow(call: Call, submitted: Submitted) -> AsyncGenerator[Followed]:
    return follow_patiently(call, follow_run(call, submitted.run, is_fresh=_is_fresh(submitted)))


def _stopping(run: Run) -> ServiceStopping:
    return ServiceStopping(f"The service stops. The message is kept; the run goes on: GET /v1/runs/{run.id}.")
