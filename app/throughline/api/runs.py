"""Routes for runs: their state, their events from any point on, and cancelling."""

from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from throughline.api.answer_turn import AskedTurn, answer_turn, render_event, turn_answers
from throughline.api.requests import ResumeRun
from throughline.domain.errors import InvalidInput, RunNotWaiting
from throughline.http.admitted_request import PathId, Reader, Writer, run_id_of
from throughline.http.auth import IN_ADDRESS
from throughline.http.body import read_body
from throughline.http.documented import (
    ACCEPT,
    LAST_EVENT_ID,
    PREFER,
    described,
    event_stream,
    response_headers,
)
from throughline.http.follow import follow_run, following_of, stream_or_refuse
from throughline.http.route_errors import FOLLOWING, TURN, codes
from throughline.http.sse import JsonResponse, RunStream, nothing_more
from throughline.turn.follow_run import reset_event
from throughline.wire.runs import RunForOperators, RunOut, run_json

MAX_SEQ = 2**31 - 2
router = APIRouter(prefix="/v1/runs", tags=["runs"])
TOKEN = {
    "name": IN_ADDRESS,
    "in": "query",
    "required": False,
    "description": "a token made by `POST /v1/tokens`, in place of a header",
    "schema": {"type": "string"},
}


@router.get("/{run_id}", responses={HTTPStatus.OK: {"model": RunForOperators | RunOut}})
async def get_run(run_id: PathId, call: Reader) -> Response:
    """Return a run."""
    run = await call.services.database.runs.get_run(call.owner_id, run_id_of(run_id))
    return JsonResponse(run_json(run, for_operator=call.is_operator))


@router.get(
    "/{run_id}/events",
    responses={
        HTTPStatus.OK: {
            "description": "the run's events",
            "content": event_stream(),
            "headers": response_headers("Content-Location"),
        },
        HTTPStatus.NO_CONTENT: {"description": "the last event has been seen; do not come back"},
    },
    openapi_extra=described(headers=(LAST_EVENT_ID,), queries=(TOKEN,), errors=FOLLOWING),
)
async def follow_events(request: Request, run_id: PathId, call: Reader) -> Response:
    """Stream the run's events after `Last-Event-ID`: stored ones at once, later ones as they happen.

    A client that has seen the last event gets 204. If no worker works on any run for `no_worker_timeout_seconds`, the
    answer is 503, or the stream is cut if it has begun. A run that waits behind other runs is followed on.
    """
    last_seen = _last_seen(request)
    run = await call.services.database.runs.get_run(call.owner_id, run_id_of(run_id))
    start = await following_of(call).find_start(run, last_seen)
    if start is None:
        return nothing_more()
    first = ((reset_event(run),),) if start < 0 else ()
    followed = follow_run(call, run, after=max(start, 0))
    return await stream_or_refuse(request, call, RunStream(run, followed, render_event, first))


@router.post(
    "/{run_id}/resume",
    responses=turn_answers(),
    openapi_extra=described(
        body=ResumeRun, headers=(PREFER, ACCEPT), errors=(*codes(RunNotWaiting), *FOLLOWING, *TURN)
    ),
)
async def resume_run(request: Request, run_id: PathId, call: Writer) -> Response:
    """Give calls of a waiting run what they wait for; the run goes on once it waits for nothing more.

    The answer is that of a sent message. While other calls still wait, it is the waiting run.
    """
    body = await read_body(request, ResumeRun)
    given = [one.read(call.principal.user_name) for one in body.calls]
    resumed = await call.services.database.runs.resume(call.owner_id, run_id_of(run_id), given)
    after = 0 if resumed.is_repeated else resumed.last_seq
    return await answer_turn(request, call, AskedTurn(resumed.run, after=after))


@router.post("/{run_id}/cancel", responses={HTTPStatus.OK: {"model": RunForOperators | RunOut}})
async def cancel_run(run_id: PathId, call: Writer) -> Response:
    """Ask a run to stop; a queued or waiting one is cancelled at once. A run that has ended is returned unchanged."""
    run = await call.services.database.runs.request_cancel(call.owner_id, run_id_of(run_id))
    return JsonResponse(run_json(run, for_operator=call.is_operator))


def _last_seen(request: Request) -> int:
    text = request.headers.get(LAST_EVENT_ID, "0").strip()
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(MAX_SEQ)) and int(text) <= MAX_SEQ):
        raise InvalidInput(
            f"{LAST_EVENT_ID} must be the number of an event, or -1 for the beginning.", field=LAST_EVENT_ID
        )
    return int(text)
