"""Routes for runs: their state, their events from any point on, and cancelling; and how a turn is answered."""

import math
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus

import structlog
from fastapi import Request, Response

from throughline.api.requests import ResumeRun
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import BehindWaitingTurn, DailyBudgetSpent, RunNotWaiting, TemporaryError
from throughline.domain.events import RunEnded, RunEvent, RunWaiting
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import check_answers
from throughline.domain.usage_report import until_next_day
from throughline.http.auth import IN_ADDRESS
from throughline.http.body import read_body
from throughline.http.call import Call, Canceller, PathId, Reader, Writer, run_id_of
from throughline.http.documents import (
    ACCEPT,
    JSON,
    PREFER,
    Json,
    described,
    event_stream,
    response_headers,
)
from throughline.http.follow import (
    RunStream,
    follow_run,
    following_of,
    nothing_more,
    stopping,
    stream_or_refuse,
    wait_for_end,
)
from throughline.http.headers import LAST_EVENT_ID, prefers_stream, read_last_event_id
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse, error_problem, json_line, problem
from throughline.http.route_errors import FOLLOWING, RUN_CANCELLED, TURN, codes
from throughline.turn.follow_run import Followed, reset_event
from throughline.wire.events import (
    UNKNOWN_ERROR,
    Accepted,
    RunForOperators,
    RunOut,
    TurnOut,
    ending_json,
    event_json,
    run_json,
)
from throughline.wire.messages import MessageOut


def render_event(event: RunEvent) -> bytes:
    """Return one run event as a server-sent event: id, event name, and JSON in one line."""
    data = json_line(event_json(event.event))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.value.encode(), data)


def turn_problem(ended: RunEnded, *, for_operator: bool) -> Response:
    """Return the problem document of a run that failed or was cancelled.

    It has the answer that was kept, if there is one. It contains the provider's own message only if `for_operator`, and
    only if the provider said anything.
    """
    run = run_json(ended.run, for_operator=for_operator)
    more: dict[str, JsonValue] = {"run_id": str(ended.run.id), "run": run}
    if ended.run.status is RunStatus.CANCELLED:
        more["message"] = None if ended.answer is None else MessageOut.render(ended.answer)
        return problem(RUN_CANCELLED, "The run was cancelled before it had an answer. The message is kept.", more=more)
    error = ended.run.error or UNKNOWN_ERROR
    if ended.answer is not None:
        more["message"] = MessageOut.render(ended.answer)
    if for_operator and error.provider_message:
        more["provider_message"] = error.provider_message
    return problem(error.type, error.detail, more=more, headers=_retry_after(error.type, ended.run.finished_at))


def _retry_after(error_type: str, finished_at: datetime | None) -> dict[str, str]:
    """Return the header for a spent daily budget, which is renewed at midnight; the others have a usual one."""
    if error_type != DailyBudgetSpent.code or finished_at is None:
        return {}
    return {"Retry-After": str(math.ceil(until_next_day(finished_at).total_seconds()))}


@dataclass(frozen=True, slots=True)
class AskedTurn:
    """The turn that a request asked for: its run, and the event after which the request has not seen anything.

    `is_fresh`: this process has just started the run, so that none of its events can be stored yet.
    """

    run: Run
    after: int = 0
    is_fresh: bool = False


def turn_answers(*headers: str) -> dict[int | str, Json]:
    """Return the documented `responses` of a route that answers by `answer_turn`; `headers` are those it adds."""
    return {
        HTTPStatus.OK: {
            "model": TurnOut,
            "description": "the answer, or the events of the run",
            "content": {JSON: {}, **event_stream()},
            "headers": response_headers("Content-Location", *headers),
        },
        HTTPStatus.ACCEPTED: {
            "model": Accepted,
            "description": "the run, with `Prefer: respond-async`",
            "headers": response_headers("Location", "Preference-Applied", *headers),
        },
    }


async def answer_turn(request: Request, call: Call, asked: AskedTurn) -> Response:
    """Return the response in the form that the request's headers `Prefer` and `Accept` ask for."""
    run = asked.run
    if _prefers_async(request):
        shown = run_json(run, for_operator=call.is_operator)
        headers = {"Location": f"/v1/runs/{run.id}", "Preference-Applied": "respond-async"}
        return JsonResponse({"run": shown}, HTTPStatus.ACCEPTED, headers)
    if prefers_stream(request.headers.getlist("accept")):
        return await stream_or_refuse(request, call, RunStream(run, _follow(call, asked), render_event))
    return await _answer(request, call, asked)


def _prefers_async(request: Request) -> bool:
    stated = ",".join(request.headers.getlist("prefer"))
    return any(part.partition(";")[0].strip().lower() == "respond-async" for part in stated.split(","))


async def _answer(request: Request, call: Call, asked: AskedTurn) -> Response:
    """Wait until the run ends or waits, and return its answer or its wait, or the problem with which it ended."""
    run = asked.run
    if not run.status.needs_worker:
        ended = await call.services.database.followed_runs.ending(run)
    else:
        try:
            ended = await _wait(request, call, asked)
        except (TemporaryError, BehindWaitingTurn) as error:
            return error_problem(error, run_id=str(run.id))
    if isinstance(ended, RunEnded) and ended.run.status is not RunStatus.SUCCEEDED:
        return turn_problem(ended, for_operator=call.is_operator)
    return JsonResponse(ending_json(ended), headers={"Content-Location": f"/v1/runs/{run.id}"})


async def _wait(request: Request, call: Call, asked: AskedTurn) -> RunEnded | RunWaiting:
    """Return the event with which the run ends or waits.

    Raises NoWorkerAvailable, BehindWaitingTurn, and ServiceStopping, also for a client that has disconnected.
    """
    check = partial(_check_line, call)
    await check(asked.run)
    ended = await wait_for_end(request, _follow(call, asked), check)
    if ended is None:
        raise stopping(asked.run)
    return ended


async def _check_line(call: Call, run: Run) -> None:
    """Raise BehindWaitingTurn if a run that waits for a result, an approval or an answer is before this one in line."""
    waiting = await call.services.database.followed_runs.find_waiting(run)
    if waiting is None or waiting.waiting_for is None:
        return
    calls = ", ".join(f"{one.id} ({one.kind.value}: {one.name})" for one in waiting.waiting_for.calls)
    raise BehindWaitingTurn(
        f"Your message is kept as run {run.id} and stands in line. The session's turn {waiting.id} waits for {calls}. "
        f"Give it with POST /v1/runs/{waiting.id}/resume, or cancel that turn; then your message is answered.",
        run_id=str(run.id),
        waiting_run_id=str(waiting.id),
    )


def _follow(call: Call, asked: AskedTurn) -> AsyncGenerator[Followed]:
    return follow_run(call, asked.run, after=asked.after, is_fresh=asked.is_fresh)


log = structlog.get_logger(__name__)
router = PrefixRouter(prefix="/v1/runs", tags=["runs"])
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
    last_seen = read_last_event_id(request.headers.get(LAST_EVENT_ID, "0"))
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
    runs, found = call.services.database.runs, run_id_of(run_id)
    check_answers((await runs.get_run(call.owner_id, found)).waiting_for, given)
    resumed = await runs.resume(call.owner_id, found, given)
    after = 0 if resumed.is_repeated else resumed.last_seq
    return await answer_turn(request, call, AskedTurn(resumed.run, after=after))


@router.post("/{run_id}/cancel", responses={HTTPStatus.OK: {"model": RunForOperators | RunOut}})
async def cancel_run(run_id: PathId, call: Canceller) -> Response:
    """Ask a run to stop; a queued or waiting one is cancelled at once. A run that has ended is returned unchanged.

    A key with the scope `operate` cancels runs of all users, unless it acts for one of them.
    """
    found, database = run_id_of(run_id), call.services.database
    owner_id = await database.all_runs.owner_of(found) if call.reaches_all_runs else call.owner_id
    run = await database.runs.request_cancel(owner_id, found)
    if owner_id != call.owner_id:
        operator, key_id = call.principal.user_name, call.principal.key_id
        log.info("run cancelled by operator", run_id=str(found), operator=operator, key_id=str(key_id or ""))
    return JsonResponse(run_json(run, for_operator=call.is_operator))
